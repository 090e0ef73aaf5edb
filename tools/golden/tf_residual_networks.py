"""tf_cnn_benchmarks' networks with shortcuts in tf.nn, each from the table of its paper: see tf_networks.py."""
import tensorflow as tf

from tf_networks import average_pool, max_pool, mean

relu = tf.nn.relu


def conv_norm(n, conv, norm, x, channels, kernel, stride=1):
    """SAME_RESNET: as many pixels before as after."""
    return n.norm(norm, n.conv(conv, x, channels, kernel, stride, (kernel - 1) // 2))


def slow_norm(n, name, x):
    """Batch norm with the builder's defaults."""
    return n.norm(name, x, 1e-3, scale=False)


# He et al. 2015, table 1 of 50 layers; the stride is in the first 1x1 convolution.


def resnet50(n, x):
    x = max_pool(relu(conv_norm(n, "conv1", "bn1", x, 64, 7, 2)), 3, 2, "SAME")
    for stage, (blocks, channels) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), 1):
        for block in range(blocks):
            p, stride = "layer%d.%d." % (stage, block), 2 if stage > 1 and block == 0 else 1
            y = relu(conv_norm(n, p + "conv1", p + "bn1", x, channels, 1, stride))
            y = relu(conv_norm(n, p + "conv2", p + "bn2", y, channels, 3))
            y = conv_norm(n, p + "conv3", p + "bn3", y, 4 * channels, 1)
            if block == 0:
                x = conv_norm(n, p + "downsample.0", p + "downsample.1", x, 4 * channels, 1, stride)
            x = relu(x + y)
    return n.linear("fc", mean(x), n.classes)


# He et al. 2016; the norms in front of blocks are the builder's.
def resnet50_v2(n, x):
    x = max_pool(relu(conv_norm(n, "conv1", "bn1", x, 64, 7, 2)), 3, 2, "SAME")
    for stage, (blocks, channels) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), 1):
        for block in range(blocks):
            p, stride = "layer%d.%d." % (stage, block), 2 if stage > 1 and block == 0 else 1
            active = relu(slow_norm(n, p + "bn0", x))
            y = relu(conv_norm(n, p + "conv1", p + "bn1", active, channels, 1, stride))
            y = relu(conv_norm(n, p + "conv2", p + "bn2", y, channels, 3))
            y = n.conv(p + "conv3", y, 4 * channels, 1)
            if block == 0:
                x = n.conv(p + "downsample", active, 4 * channels, 1, stride)
            x = x + y
    return n.linear("fc", mean(relu(slow_norm(n, "bn_last", x))), n.classes)


# TensorFlow's official models: fixed padding, the stride in the 3x3 convolution, a projection in each first block.


def official(n, x, blocks, bottleneck, version):
    x = n.conv("conv1", x, 64, 7, 2, 3)
    if version == 1:
        x = relu(n.norm("bn1", x))
    x = max_pool(x, 3, 2, "SAME")
    for stage, count in enumerate(blocks, 1):
        channels = 32 << stage
        for block in range(count):
            p, stride = "layer%d.%d." % (stage, block), 2 if stage > 1 and block == 0 else 1
            wide = 4 * channels if bottleneck else channels
            layers = [(channels, 1, 1), (channels, 3, stride), (wide, 1, 1)] if bottleneck else [(channels, 3, stride), (wide, 3, 1)]
            if version == 1:
                y = x
                for i, (out, kernel, step) in enumerate(layers, 1):
                    y = n.norm(p + "bn%d" % i, n.conv(p + "conv%d" % i, y, out, kernel, step, kernel // 2))
                    y = relu(y) if i < len(layers) else y
                if block == 0:
                    x = n.norm(p + "projection_bn", n.conv(p + "projection", x, wide, 1, stride))
                x = relu(x + y)
            else:
                y = x
                for i, (out, kernel, step) in enumerate(layers, 1):
                    y = relu(n.norm(p + "bn%d" % i, y))
                    if i == 1 and block == 0:
                        x = n.conv(p + "projection", y, wide, 1, stride)
                    y = n.conv(p + "conv%d" % i, y, out, kernel, step, kernel // 2)
                x = x + y
    if version == 2:
        x = relu(n.norm("bn_last", x))
    return n.linear("fc", mean(x), n.classes)


def official_resnet18(n, x):
    return official(n, x, (2, 2, 2, 2), False, 1)


def official_resnet50(n, x):
    return official(n, x, (3, 4, 6, 3), True, 1)


def official_resnet50_v2(n, x):
    return official(n, x, (3, 4, 6, 3), True, 2)


# Sandler et al., "MobileNetV2", 2018, table 2; slim's norm.
def mobilenet(n, x):
    def layer(name, x, channels, kernel, stride=1, activate=True, depthwise=False):
        x = n.norm(name + ".bn", n.conv(name, x, channels, kernel, stride, depthwise=depthwise), 1e-3)
        return tf.nn.relu6(x) if activate else x

    x = layer("conv", x, 32, 3, 2)
    number = 0
    for t, c, count, s in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            name, stride = "expanded_conv%d" % number, s if i == 0 else 1
            y = layer(name + ".expand", x, t * x.shape[3], 1) if t > 1 else x
            y = layer(name + ".depthwise", y, None, 3, stride, depthwise=True)
            y = layer(name + ".project", y, c, 1, activate=False)
            x = x + y if i > 0 else y
            number += 1
    return n.linear("logits", mean(layer("conv_last", x, 1280, 1)), n.classes)


# He et al. 2015, section 4.2, with shortcuts of option A: every second pixel, channels of zeros on both sides.


def cifar_resnet(n, x, version):
    x = conv_norm(n, "conv1", "bn1", x, 16, 3)
    x = relu(x) if version == 2 else x
    for stage in (1, 2, 3):
        channels = 8 << stage
        for block in range(3):
            p, stride = "layer%d.%d." % (stage, block), 2 if stage > 1 and block == 0 else 1
            past = x
            if stride == 2:
                past = tf.pad(x[:, ::2, ::2], [[0, 0], [0, 0], [0, 0], [channels // 4, channels // 4]])
            if version == 1:
                y = relu(conv_norm_same(n, p, 1, x, channels, stride))
                x = relu(conv_norm_same(n, p, 2, y, channels, 1) + past)
            else:
                y = relu(conv_norm_same(n, p, 1, relu(slow_norm(n, p + "bn0", x)), channels, stride))
                x = n.conv(p + "conv2", y, channels, 3) + past
    x = relu(slow_norm(n, "bn_last", x)) if version == 2 else x
    return n.linear("fc", mean(x), n.classes)


def conv_norm_same(n, prefix, number, x, channels, stride):
    """TensorFlow's own padding, which is not the same on both sides where the stride is 2."""
    return n.norm("%sbn%d" % (prefix, number), n.conv("%sconv%d" % (prefix, number), x, channels, 3, stride, "SAME"))


def resnet20(n, x):
    return cifar_resnet(n, x, 1)


def resnet20_v2(n, x):
    return cifar_resnet(n, x, 2)


# Huang et al., "Densely connected convolutional networks", 2017, k = 12, 40 layers, without bottlenecks; biases, and a
# ReLU after a transition's convolution, as tf_cnn_benchmarks has them.
def densenet40_k12(n, x):
    x = n.conv("conv0", x, 16, 3, bias=True)
    for block in (1, 2, 3):
        for i in range(12):
            p = "block%d.%d." % (block, i)
            x = tf.concat([x, n.conv(p + "conv", relu(n.norm(p + "bn", x)), 12, 3, bias=True)], 3)
        if block < 3:
            p = "transition%d." % block
            x = relu(n.conv(p + "conv", relu(n.norm(p + "bn", x)), x.shape[3], 1, bias=True))
            x = average_pool(x, 2, 2)
    return n.linear("fc", mean(relu(n.norm("bn", x))), n.classes)


# Zoph et al., "Learning transferable architectures for scalable image recognition", 2018: NASNet-A, figure 4; each cell as
# pairs that are added, (operation, which state) twice: 0 is the cell's input, 1 the one before.
NORMAL = [(("sep5", 0), ("sep3", 1)), (("sep5", 1), ("sep3", 1)), (("avg3", 0), ("none", 1)), (("avg3", 1), ("avg3", 1)),
          (("sep3", 0), ("none", 0))]
REDUCTION = [(("sep5", 0), ("sep7", 1)), (("max3", 0), ("sep7", 1)), (("avg3", 0), ("sep5", 1)), (("none", 3), ("avg3", 2)),
             (("sep3", 2), ("max3", 0))]


def nasnet_cell(n, name, x, before, filters, reduction, epsilon):
    def pointwise(p, x, channels, stride=1):
        return n.norm(p + ".bn", n.conv(p, x, channels, 1, stride), epsilon)

    def separable(p, x, kernel, stride):
        for i in (1, 2):
            q = "%s.separable_%d" % (p, i)
            x = n.conv(q + ".depthwise", relu(x), None, kernel, stride if i == 1 else 1, depthwise=True)
            x = pointwise(q + ".pointwise", x, filters)
        return x

    def fitted(p, before, x):
        if before.shape[1] != x.shape[1]:
            y = relu(before)
            first, second = y[:, ::2, ::2], tf.pad(y, [[0, 0], [0, 1], [0, 1], [0, 0]])[:, 1:, 1:][:, ::2, ::2]
            paths = [n.conv("%s.path%d_conv" % (p, i), path, filters // 2, 1) for i, path in ((1, first), (2, second))]
            return n.norm(p + ".bn", tf.concat(paths, 3), epsilon)
        return pointwise(p, relu(before), filters) if before.shape[3] != filters else before

    states = [pointwise(name + ".begin", relu(x), filters), x if before is None else fitted(name + ".before", before, x)]
    for i, pair in enumerate(REDUCTION if reduction else NORMAL):
        sides = []
        for side, (kind, state) in zip(("left", "right"), pair):
            p, y = "%s.comb_iter_%d.%s" % (name, i, side), states[state]
            stride = 2 if reduction and state < 2 else 1
            if kind.startswith("sep"):
                y = separable(p, y, int(kind[3]), stride)
            elif kind == "none":
                y = pointwise(p + ".1x1", relu(y), filters, stride) if stride > 1 or y.shape[3] != filters else y
            else:
                channels = y.shape[3]
                y = (average_pool if kind == "avg3" else max_pool)(y, 3, stride, "SAME")
                y = pointwise(p + ".1x1", y, filters) if channels != filters else y
            sides.append(y)
        states.append(sides[0] + sides[1])
    if not reduction and states[1].shape[3] != filters:
        states[1] = pointwise(name + ".reduction_1", states[1], filters)
    return tf.concat(states[3:] if reduction else states[1:], 3)


def nasnet_body(n, outputs, filters, cells, skip, epsilon):
    x = outputs[-1]
    for i in range(cells):
        before = outputs[-2] if len(outputs) > 1 else None
        if i in (cells // 3, 2 * cells // 3):
            filters *= 2
            x = nasnet_cell(n, "reduction_cell_%d" % (i * 3 // cells - 1), x, before, filters, True, epsilon)
            outputs.append(x)
            before = before if skip else outputs[-2]
        x = nasnet_cell(n, "cell_%d" % i, x, before, filters, False, epsilon)
        outputs.append(x)
    return n.linear("fc", mean(relu(x)), n.classes)


def cifar_nasnet(n, x):
    """NASNet-A (6 @ 768): 18 cells."""
    x = n.norm("l1_stem_3x3.bn", n.conv("l1_stem_3x3", x, 96, 3), 1e-5)
    return nasnet_body(n, [x], 32, 18, False, 1e-5)


def nasnet(n, x):
    """NASNet-A (4 @ 1056): 12 cells behind a stem of two reductions."""
    outputs = [n.norm("conv0.bn", n.conv("conv0", x, 32, 3, 2, "VALID"), 1e-3)]
    for i in (0, 1):
        before = outputs[-2] if len(outputs) > 1 else None
        outputs.append(nasnet_cell(n, "cell_stem_%d" % i, outputs[-1], before, 44 * (i + 1) // 4, True, 1e-3))
    return nasnet_body(n, outputs, 44, 12, False, 1e-3)
