"""What torchvision's models compute, for trainyard/models/torchvision/torchvision_test.cpp.

usage: torchvision_models.py FOLDER [MODEL...]     (torch and torchvision; all models that the test lists by default)

Weights, statistics and images are a formula of a tensor's name and an element's index (drawn.py; the test computes the same).
MODEL_aux is that model with its auxiliary classifiers, whose outputs are multiplied by draw("cotangent <name>") and
added to the loss with the weight that the network's authors give. For each model FOLDER/<model>.txt has
  parameters COUNT        at 1,000 classes, of a detector at 91
  logits NUMBER...        evaluation mode; of a detector every so manyth (drawn.output_lines)
  gradient NAME [SHAPE] NORM PROBE
for the loss mean(logits * draw("cotangent")) in training mode without dropout and stochastic depth; PROBE is the
gradient's product with draw("probe <name>"), which a wrong gradient of the right norm does not have. The models have
CLASSES classes and BATCH images of SIZE x SIZE. Everything is computed in double: batch norm over few pixels makes
gradients in float as different as 0.1 from one order of summation to another.
"""

import sys

import torch
import torchvision

import drawn

CLASSES, BATCH = 10, 2
SIZE = 64
# Larger than 64; so that the auxiliary classifier has a pixel left; so that ceil_mode matters.
SIZES = {"inception_v3": 107, "inception_v3_aux": 299, "squeezenet1_1": 66, "ssd300_vgg16": 300}
# By model: our output's name, torchvision's, the weight.
AUXILIARY = {"googlenet_aux": [("aux1", "aux_logits1", 0.3), ("aux2", "aux_logits2", 0.3)],
             "inception_v3_aux": [("AuxLogits", "aux_logits", 0.4)]}
MODELS = """
    alexnet convnext_tiny convnext_small convnext_base densenet121 densenet161 densenet169 densenet201 efficientnet_b0
    efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_v2_s googlenet inception_v3 mnasnet1_0 mobilenet_v2 mobilenet_v3_large
    mobilenet_v3_small regnet_y_1_6gf regnet_y_400mf resnet18 resnet34 resnet50 resnet101 resnet152 resnext50_32x4d
    shufflenet_v2_x1_0 squeezenet1_1 swin_t wide_resnet50_2 vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn
    vit_b_16 googlenet_aux inception_v3_aux ssd300_vgg16 ffcv_resnet50
""".split()


class Detector(torch.nn.Module):
    """The rows that the heads of a detector predict: offsets, then the scores."""

    def __init__(self, model):
        super().__init__()
        self.backbone, self.head = model.backbone, model.head

    def forward(self, images):
        outputs = self.head(list(self.backbone(images).values()))
        return torch.cat([outputs["bbox_regression"], outputs["cls_logits"]], 2)


class Blurred(torch.nn.Module):
    """A convolution of an image that is blurred first."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv
        row = torch.tensor([1.0, 2, 1], dtype=torch.float64) / 4
        self.blur = torch.outer(row, row).repeat(conv.in_channels, 1, 1, 1)

    def forward(self, x):
        return self.conv(torch.nn.functional.conv2d(x, self.blur, padding=1, groups=self.conv.in_channels))


def blur_before_strides(module):
    """As FFCV's ImageNet example does it: convolutions with a stride, of 16 channels and more."""
    for name, child in list(module.named_children()):
        if isinstance(child, torch.nn.Conv2d):
            if max(child.stride) > 1 and child.in_channels >= 16:
                setattr(module, name, Blurred(child))
        else:
            blur_before_strides(child)
    return module


def make(name, classes, size=224):
    """`size` matters only to those whose parameters depend on it."""
    options = {}
    if name.startswith("vit_"):
        options = {"image_size": size}
    if name == "ssd300_vgg16":
        return Detector(torchvision.models.detection.ssd300_vgg16(weights=None, weights_backbone=None, num_classes=classes))
    if name == "ffcv_resnet50":
        return blur_before_strides(torchvision.models.resnet50(num_classes=classes))
    auxiliary = name.endswith("_aux")
    base = name.removesuffix("_aux")
    if base in ("inception_v3", "googlenet"):
        options = {"aux_logits": auxiliary, "init_weights": False}
    return getattr(torchvision.models, base)(num_classes=classes, **options)


def write(folder, name):
    detector = name == "ssd300_vgg16"
    published = 91 if detector else 1000
    lines = ["parameters %d" % sum(p.numel() for p in make(name, published).parameters())]
    size = SIZES.get(name, SIZE)
    model = make(name, CLASSES, size).double()
    with torch.no_grad():
        for tensor_name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(torch.from_numpy(drawn.start(tensor_name, tuple(tensor.shape))))
    for module in model.modules():
        if isinstance(module, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
            module.p = 0.0
    images = torch.from_numpy(drawn.draw("images", (1 if detector else BATCH, 3, size, size)))
    with torch.no_grad():
        logits = model.eval()(images)
    lines += drawn.output_lines(logits.numpy())
    outputs = model.train()(images)
    logits = outputs if torch.is_tensor(outputs) else outputs.logits
    cotangent = torch.from_numpy(drawn.draw("cotangent", tuple(logits.shape)))
    loss = (logits * cotangent).mean()
    for output_name, field, weight in AUXILIARY.get(name, []):
        output = getattr(outputs, field)
        loss += weight * (output * torch.from_numpy(drawn.draw("cotangent " + output_name, tuple(output.shape)))).mean()
    loss.backward()
    for parameter_name, parameter in model.named_parameters():
        shape = tuple(parameter.shape)
        probe = (parameter.grad * torch.from_numpy(drawn.draw("probe " + parameter_name, shape))).sum().item()
        lines.append("gradient %s [%s] %.6g %.6g" % (parameter_name, ", ".join(map(str, shape)),
                                                     parameter.grad.norm().item(), probe))
    with open("%s/%s.txt" % (folder, name), "w") as file:
        file.write("\n".join(lines) + "\n")
    print(name, "largest logit %.3g" % logits.abs().max().item(), flush=True)


for model_name in sys.argv[2:] or MODELS:
    write(sys.argv[1], model_name)
