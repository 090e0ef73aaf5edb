"""SSD300 on ResNet-34 in PyTorch, as ours and tf_cnn_benchmarks' (trainyard/models/tf_cnn/ssd300.cpp) in every layer, for
train_torchvision.py. What costs PyTorch less and computes as much is taken: rows of predictions lie pixel by pixel, which
are no copies of images in channels_last, and paddings are symmetric."""

import torch
from torch import nn
from torch.nn import functional

BOXES = (4, 6, 6, 6, 4, 4)  # at each pixel of a map
CLASSES, DEFAULT_BOXES = 81, 8732


def conv_norm(inputs, outputs, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs, 1e-4, 0.003))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.conv2 = conv_norm(inputs, outputs, 3, stride), conv_norm(outputs, outputs, 3)
        self.shortcut = conv_norm(inputs, outputs, 1, stride) if inputs != outputs else nn.Identity()

    def forward(self, images):
        out = self.conv2(functional.relu(self.conv1(images), inplace=True))
        return functional.relu(out + self.shortcut(images), inplace=True)


class Ssd300(nn.Module):
    def __init__(self):
        super().__init__()
        layers, inputs = [conv_norm(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, ceil_mode=True)], 64
        for outputs, stride, blocks in ((64, 1, 3), (128, 2, 4), (256, 1, 6)):
            for number in range(blocks):
                layers.append(Block(inputs, outputs, stride if number == 0 else 1))
                inputs = outputs
        self.backbone, self.extra, maps = nn.Sequential(*layers), nn.ModuleList(), [inputs]
        for narrow, wide, stride, padding in ((256, 512, 2, 1), (256, 512, 2, 1), (128, 256, 2, 1), (128, 256, 1, 0), (128, 256, 1, 0)):
            self.extra.append(nn.Sequential(nn.Conv2d(inputs, narrow, 1), nn.ReLU(inplace=True),
                                            nn.Conv2d(narrow, wide, 3, stride, padding), nn.ReLU(inplace=True)))
            inputs = wide
            maps.append(inputs)
        heads = [[nn.Conv2d(channels, boxes * columns, 3, padding=1) for columns in (4, CLASSES)] for channels, boxes in zip(maps, BOXES)]
        self.offsets, self.scores = (nn.ModuleList(side) for side in zip(*heads))

    def forward(self, images):
        maps = [self.backbone(images)]
        for layer in self.extra:
            maps.append(layer(maps[-1]))

        def rows(heads, columns):
            return torch.cat([head(x).permute(0, 2, 3, 1).reshape(len(x), -1, columns) for head, x in zip(heads, maps)], 1)

        return rows(self.offsets, 4), rows(self.scores, CLASSES)


def targets(batch):
    """Synthetic ones, as ours: nothing but background, and a number of matches that says how many hard boxes count."""
    return torch.rand(batch, DEFAULT_BOXES, 4), torch.zeros(batch, DEFAULT_BOXES, dtype=torch.int64), torch.randint(1, 10, (batch,))


def loss_of(offsets, scores, boxes, classes, matched):
    positive = classes > 0
    box_loss = (functional.smooth_l1_loss(offsets.float(), boxes, reduction="none").sum(2) * positive).sum(1)
    entropy = functional.cross_entropy(scores.float().transpose(1, 2), classes, reduction="none")
    rank = entropy.detach().masked_fill(positive, 0).argsort(1, descending=True).argsort(1)
    class_loss = (entropy * (positive.float() + (rank < 3 * matched[:, None]).float())).sum(1)
    return ((box_loss + class_loss) / matched).mean()
