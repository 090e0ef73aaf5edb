"""tf_cnn_benchmarks' networks in tf.nn, each from the table of its paper: one of each family, for tf_models.py.

Every function takes a Network, which computes layer by layer in double, and the images as [N, H, W, 3]; it ends with the
logits. Names of layers are those of the models here.
"""
import numpy
import tensorflow as tf


class Network:
    """tf.nn with weights by name. `start(name, shape)` gives a variable's value as this project lays it out: [out, in,
    height, width], [out, in] or [channels]; `variables` has all of them afterwards."""

    def __init__(self, start, classes, training):
        self.start, self.classes, self.training = start, classes, training
        self.variables, self.constants, self.counts = {}, {}, {}

    def variable(self, name, shape):
        if name not in self.variables:
            self.variables[name] = tf.Variable(self.start(name, shape), dtype=tf.float64)
        return self.variables[name]

    def number(self, kind):
        self.counts[kind] = self.counts.get(kind, -1) + 1
        return "%s%d" % (kind, self.counts[kind])

    def conv(self, name, x, channels, kernel, stride=1, padding="SAME", bias=False, depthwise=False):
        """`padding` as a number: so many pixels on each side."""
        height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        if isinstance(padding, int):
            x, padding = tf.pad(x, [[0, 0], [padding, padding], [padding, padding], [0, 0]]), "VALID"
        strides = [1, stride, stride, 1]
        if depthwise:
            weight = self.variable(name + ".weight", (x.shape[3], 1, height, width))
            x = tf.nn.depthwise_conv2d(x, tf.transpose(weight, [2, 3, 0, 1]), strides, padding)
        else:
            weight = self.variable(name + ".weight", (channels, x.shape[3], height, width))
            x = tf.nn.conv2d(x, tf.transpose(weight, [2, 3, 1, 0]), strides, padding)
        return x + self.variable(name + ".bias", (channels,)) if bias else x

    def norm(self, name, x, epsilon=1e-5, scale=True):
        channels = (x.shape[3],)
        gamma = self.variable(name + ".weight", channels) if scale else tf.ones(channels, tf.float64)
        beta = self.variable(name + ".bias", channels)
        if self.training:
            mean, variance = tf.nn.moments(x, [0, 1, 2])
        else:
            mean, variance = self.start(name + ".running_mean", channels), self.start(name + ".running_var", channels)
        return tf.nn.batch_normalization(x, mean, variance, beta, gamma, epsilon)

    def linear(self, name, x, units):
        return x @ tf.transpose(self.variable(name + ".weight", (units, x.shape[1]))) + self.variable(name + ".bias", (units,))


def flat(x):
    """Channels outermost."""
    return tf.reshape(tf.transpose(x, [0, 3, 1, 2]), [x.shape[0], -1])


def mean(x):
    return tf.reduce_mean(x, [1, 2])


def max_pool(x, kernel, stride, padding="VALID"):
    return tf.nn.max_pool2d(x, kernel, stride, padding)


def average_pool(x, kernel, stride, padding="VALID"):
    return tf.nn.avg_pool2d(x, kernel, stride, padding)


def response_norm(x, radius, bias, alpha, beta):
    """tf.nn.local_response_normalization, which knows no double."""
    squares = tf.pad(x * x, [[0, 0], [0, 0], [0, 0], [radius, radius]])
    return x / (bias + alpha * sum(squares[..., i:i + x.shape[3]] for i in range(2 * radius + 1))) ** beta


# Chains: convolutions and modules of columns, counted by kind; with batch norm (epsilon 0.001, no scale) or biases.


def chain_conv(n, x, channels, kernel, stride=1, padding="SAME", norm=False):
    name = n.number("conv")
    x = n.conv(name, x, channels, kernel, stride, padding, bias=not norm)
    return tf.nn.relu(n.norm(name + ".bn", x, 1e-3, scale=False) if norm else x)


def classify(n, x, *hidden):
    for units in hidden:
        x = tf.nn.relu(n.linear(n.number("affine"), x, units))
    return n.linear(n.number("affine"), x, n.classes)


def alexnet(n, x):
    x = max_pool(chain_conv(n, x, 64, 11, 4, "VALID"), 3, 2)
    x = max_pool(chain_conv(n, x, 192, 5), 3, 2)
    for channels in (384, 384, 256):
        x = chain_conv(n, x, channels, 3)
    return classify(n, flat(max_pool(x, 3, 2)), 4096, 4096)


def cifar_alexnet(n, x):
    x = response_norm(max_pool(chain_conv(n, x, 64, 5), 3, 2, "SAME"), 4, 1.0, 0.001 / 9, 0.75)
    x = max_pool(response_norm(chain_conv(n, x, 64, 5), 4, 1.0, 0.001 / 9, 0.75), 3, 2, "SAME")
    return classify(n, flat(x), 384, 192)


def overfeat(n, x):
    x = max_pool(chain_conv(n, x, 96, 11, 4, "VALID"), 2, 2)
    x = max_pool(chain_conv(n, x, 256, 5, 1, "VALID"), 2, 2)
    for channels in (512, 1024, 1024):
        x = chain_conv(n, x, channels, 3)
    return classify(n, flat(max_pool(x, 2, 2)), 3072, 4096)


def vgg11(n, x):
    for channels in (64, 128, (256, 256), (512, 512), (512, 512)):
        for each in channels if isinstance(channels, tuple) else (channels,):
            x = chain_conv(n, x, each, 3)
        x = max_pool(x, 2, 2)
    return classify(n, flat(x), 4096, 4096)


def googlenet(n, x):
    def module(x, one, before_three, three, before_five, five, pooled):
        return tf.concat([chain_conv(n, x, one, 1),
                          chain_conv(n, chain_conv(n, x, before_three, 1), three, 3),
                          chain_conv(n, chain_conv(n, x, before_five, 1), five, 5),
                          chain_conv(n, max_pool(x, 3, 1, "SAME"), pooled, 1)], 3)

    x = max_pool(chain_conv(n, x, 64, 7, 2), 3, 2, "SAME")
    x = max_pool(chain_conv(n, chain_conv(n, x, 64, 1), 192, 3), 3, 2, "SAME")
    x = module(x, 64, 96, 128, 16, 32, 32)
    x = max_pool(module(x, 128, 128, 192, 32, 96, 64), 3, 2, "SAME")
    x = module(x, 192, 96, 208, 16, 48, 64)
    x = module(x, 160, 112, 224, 24, 64, 64)
    x = module(x, 128, 128, 256, 24, 64, 64)
    x = module(x, 112, 144, 288, 32, 64, 64)
    x = max_pool(module(x, 256, 160, 320, 32, 128, 128), 3, 2, "SAME")
    x = module(x, 256, 160, 320, 32, 128, 128)
    return classify(n, mean(module(x, 384, 192, 384, 48, 128, 128)))


def inception_layers(n):
    def conv(x, channels, *kernel, stride=1, padding="SAME"):
        return chain_conv(n, x, channels, kernel if len(kernel) == 2 else kernel[0], stride, padding, norm=True)

    def several(x, *layers):
        for channels, *kernel in layers:
            x = conv(x, channels, *kernel)
        return x

    return conv, several


def inception3(n, x):
    conv, several = inception_layers(n)
    x = conv(conv(conv(x, 32, 3, stride=2, padding="VALID"), 32, 3, padding="VALID"), 64, 3)
    x = conv(conv(max_pool(x, 3, 2), 80, 1, padding="VALID"), 192, 3, padding="VALID")
    x = max_pool(x, 3, 2)
    for pooled in (32, 64, 64):
        x = tf.concat([conv(x, 64, 1), several(x, (48, 1), (64, 5)), several(x, (64, 1), (96, 3), (96, 3)),
                       conv(average_pool(x, 3, 1, "SAME"), pooled, 1)], 3)
    x = tf.concat([conv(x, 384, 3, stride=2, padding="VALID"),
                   conv(several(x, (64, 1), (96, 3)), 96, 3, stride=2, padding="VALID"), max_pool(x, 3, 2)], 3)
    for c in (128, 160, 160, 192):
        x = tf.concat([conv(x, 192, 1), several(x, (c, 1), (c, 1, 7), (192, 7, 1)),
                       several(x, (c, 1), (c, 7, 1), (c, 1, 7), (c, 7, 1), (192, 1, 7)),
                       conv(average_pool(x, 3, 1, "SAME"), 192, 1)], 3)
    x = tf.concat([conv(conv(x, 192, 1), 320, 3, stride=2, padding="VALID"),
                   conv(several(x, (192, 1), (192, 1, 7), (192, 7, 1)), 192, 3, stride=2, padding="VALID"),
                   max_pool(x, 3, 2)], 3)
    for pool in (average_pool, max_pool):
        columns = [conv(x, 320, 1)]
        split = conv(x, 384, 1)
        columns += [conv(split, 384, 1, 3), conv(split, 384, 3, 1)]
        split = several(x, (448, 1), (384, 3))
        columns += [conv(split, 384, 1, 3), conv(split, 384, 3, 1)]
        x = tf.concat(columns + [conv(pool(x, 3, 1, "SAME"), 192, 1)], 3)
    return classify(n, mean(x))


def inception4(n, x):
    conv, several = inception_layers(n)
    x = conv(conv(conv(x, 32, 3, stride=2, padding="VALID"), 32, 3, padding="VALID"), 64, 3)
    x = tf.concat([max_pool(x, 3, 2), conv(x, 96, 3, stride=2, padding="VALID")], 3)
    x = tf.concat([conv(conv(x, 64, 1), 96, 3, padding="VALID"),
                   conv(several(x, (64, 1), (64, 7, 1), (64, 1, 7)), 96, 3, padding="VALID")], 3)
    x = tf.concat([conv(x, 192, 3, stride=2, padding="VALID"), max_pool(x, 3, 2)], 3)
    for _ in range(4):
        x = tf.concat([conv(average_pool(x, 3, 1, "SAME"), 96, 1), conv(x, 96, 1), several(x, (64, 1), (96, 3)),
                       several(x, (64, 1), (96, 3), (96, 3))], 3)
    x = tf.concat([max_pool(x, 3, 2), conv(x, 384, 3, stride=2, padding="VALID"),
                   conv(several(x, (192, 1), (224, 3)), 256, 3, stride=2, padding="VALID")], 3)
    for _ in range(7):
        x = tf.concat([conv(average_pool(x, 3, 1, "SAME"), 128, 1), conv(x, 384, 1),
                       several(x, (192, 1), (224, 1, 7), (256, 7, 1)),
                       several(x, (192, 1), (192, 1, 7), (224, 7, 1), (224, 1, 7), (256, 7, 1))], 3)
    x = tf.concat([max_pool(x, 3, 2), conv(conv(x, 192, 1), 192, 3, stride=2, padding="VALID"),
                   conv(several(x, (256, 1), (256, 1, 7), (320, 7, 1)), 320, 3, stride=2, padding="VALID")], 3)
    for _ in range(3):
        columns = [conv(average_pool(x, 3, 1, "SAME"), 256, 1), conv(x, 256, 1)]
        split = conv(x, 384, 1)
        columns += [conv(split, 256, 1, 3), conv(split, 256, 3, 1)]
        split = several(x, (384, 1), (448, 1, 3), (512, 3, 1))
        x = tf.concat(columns + [conv(split, 256, 3, 1), conv(split, 256, 1, 3)], 3)
    return classify(n, mean(x))


def lenet(n, x):
    for number, channels in (("1", 32), ("2", 64)):
        x = max_pool(tf.nn.relu(n.conv("conv" + number, x, channels, 5, bias=True)), 2, 2)
    return n.linear("fc2", tf.nn.relu(n.linear("fc1", flat(x), 512)), n.classes)


def trivial(n, x):
    return classify(n, flat(x), 1, 4096)
