"""tf_cnn_benchmarks' SSD300 in tf.nn, from Liu et al., "SSD: single shot multibox detector", 2016, and MLPerf's ResNet-34
under it: see tf_networks.py."""
import tensorflow as tf

from tf_networks import max_pool

relu = tf.nn.relu
BOXES = (4, 6, 6, 6, 4, 4)  # at each pixel of a map


def ssd300(n, x):
    def backbone_conv(x, channels, kernel, stride=1, padding="SAME"):
        name = "resnet34_backbone." + n.number("conv")
        return n.norm(name + ".bn", n.conv(name, x, channels, kernel, stride, padding), 1e-4)

    def conv(x, channels, kernel, stride=1, padding="SAME"):
        return n.conv(n.number("conv"), x, channels, kernel, stride, padding, bias=True)

    def rows(x, columns):
        """The boxes outermost, then the pixels."""
        batch, height, width, channels = x.shape
        boxes = tf.reshape(tf.transpose(x, [0, 3, 1, 2]), [batch, channels // columns, columns, height, width])
        return tf.reshape(tf.transpose(boxes, [0, 1, 3, 4, 2]), [batch, -1, columns])

    x = max_pool(relu(backbone_conv(x, 64, 7, 2, 3)), 3, 2, "SAME")
    for group, blocks in enumerate((3, 4, 6)):
        for block in range(blocks):
            channels, shortcut, stride = 64 << group, x, 1
            if group > 0 and block == 0:
                stride = 2 if group == 1 else 1
                shortcut = backbone_conv(x, channels, 1, stride)
            y = relu(backbone_conv(x, channels, 3, stride))
            x = relu(shortcut + backbone_conv(y, channels, 3))
    maps = [x]
    for narrow, wide, stride, padding in ((256, 512, 2, "SAME"), (256, 512, 2, "SAME"), (128, 256, 2, "SAME"),
                                          (128, 256, 1, "VALID"), (128, 256, 1, "VALID")):
        x = relu(conv(relu(conv(x, narrow, 1, padding="VALID")), wide, 3, stride, padding))
        maps.append(x)
    offsets, scores = [], []
    for x, boxes in zip(maps, BOXES):
        offsets.append(rows(conv(x, boxes * 4, 3), 4))
        scores.append(rows(conv(x, boxes * n.classes, 3), n.classes))
    return tf.concat([tf.concat(offsets, 1), tf.concat(scores, 1)], 2)
