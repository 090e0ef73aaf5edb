#!/usr/bin/env python3
"""Writes what the optimizers of PyTorch, Keras and TensorFlow make of a small bowl in 1,000 steps, for
golden_steps_test.cpp: optimizers.py > trainyard/optim/testdata/optimizers.txt

Needs Keras 3, torch and TensorFlow (benchmarks/peers/requirements.txt), and tf-keras==2.21.0. All but tf_keras compute
in double: Keras on top of torch, since on TensorFlow it rounds its constants to float first, and TensorFlow 1's
optimizers with constants of that type. tf.keras' Nadam of up to 2.10 computes in float: in double it never moves its
product of momenta (its cache is float32, and is assigned for variables of that type only).

Each parameter has an optimizer of its own, so that its rate and its decay can be its own everywhere. Before the lines of
a source there is one, "<source>: <our optimizer> <number> <value> ...", by which the test makes ours; "decoupled" in it
is OptimizerOptions::decoupled_decay, "changed" a momentum that changes, "float" a source that computes in float. The
others: source, step, the seven values after it.

`optimizers.py torch` writes the lines of PyTorch alone, and needs no other program; `optimizers.py packages` those of
the packages schedulefree 1.4.1 and lion-pytorch 0.2.5, and of Lookahead. "result" in a source's line says that the values
are those that schedulefree evaluates; "lookahead" stands for 5 steps and an alpha of 0.5, "lookahead_growing" for one
that falls from 1 to 1 - 0.95^5 over all updates.
"""
import os
import sys

os.environ["KERAS_BACKEND"] = "torch"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np
import torch

ONLY_TORCH, ONLY_PACKAGES = sys.argv[1:] == ["torch"], sys.argv[1:] == ["packages"]
if not ONLY_TORCH:
    import lion_pytorch
    import schedulefree
if not ONLY_TORCH and not ONLY_PACKAGES:
    import keras
    import tensorflow as tf
    import tf_keras

STEPS, SKIPPED, SHOWN = 1000, 300, (0, 1, 2, 10, 100, 299, 300, 301, 999)
MOMENTUM, DAMPENING, BETA1, BETA2 = 0.8, 0.3, 0.85, 0.99
EPSILON, SQUARE_DECAY, SQUARE_EPSILON = 1e-5, 0.9, 0.01
# The same numbers as our optimizers call them.
VELOCITY = f"momentum {MOMENTUM}"
SQUARES = f"mean_square_decay {SQUARE_DECAY} momentum {MOMENTUM} epsilon {SQUARE_EPSILON}"
MEANS = f"beta1 {BETA1} beta2 {BETA2} epsilon {EPSILON}"
# Two parameters: "body" with a weight decay of 0.02, and "head" with 0.3 and half of the rate.
START = (np.array([1.0, -2.0, 0.5, 3.0]), np.array([-0.25, 0.75, 2.0]))
DECAY = (0.02, 0.3)
RATE = (1.0, 0.5)


def rate(step):
    return 0.02 / (1 + 0.01 * step)


def gradient(values, step, parameter):
    """Of the loss without weight decay: a bowl whose middle moves."""
    places = np.arange(len(values)) + 4.0 * parameter
    return (0.5 + 0.25 * places) * (values - np.sin(0.05 * step + places))


class Torch:
    """decays: the optimizer adds the weight decay itself."""

    def __init__(self, make, start, decay, decays=True):
        self.parameter = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        self.optimizer = make([self.parameter], lr=0.1, weight_decay=decay)
        self.decays = decays

    def value(self):
        return self.parameter.detach().numpy().copy()

    def update(self, gradient, learning_rate):
        self.parameter.grad = torch.tensor(gradient, dtype=torch.float64)
        self.optimizer.param_groups[0]["lr"] = learning_rate
        self.optimizer.step()


class TorchChangedMomentum(Torch):
    """A momentum of 0 at first and for some steps later: neither dampens, and the velocity rests."""

    def __init__(self, start, decay):
        super().__init__(lambda *a, **k: torch.optim.SGD(*a, **k, dampening=DAMPENING), start, decay)
        self.updates = 0

    def update(self, gradient, learning_rate):
        self.optimizer.param_groups[0]["momentum"] = 0 if self.updates < 2 or 100 <= self.updates < 250 else MOMENTUM
        self.updates += 1
        super().update(gradient, learning_rate)


class ScheduleFree(Torch):
    """result: what is shown is the point that is evaluated, x; else the one that is trained, y."""

    def __init__(self, make, start, decay, result):
        super().__init__(make, start, decay)
        self.optimizer.train()
        self.result = result

    def shown(self):
        if not self.result:
            return self.value()
        self.optimizer.eval()
        value = self.value()
        self.optimizer.train()
        return value


class Lookahead(Torch):
    """Zhang et al. 2019, algorithm 1, around any optimizer."""
    STEPS, ALPHA = 5, 0.5

    def __init__(self, make, start, decay):
        super().__init__(make, start, decay)
        self.slow = self.parameter.detach().clone()
        self.updates = 0

    def update(self, gradient, learning_rate):
        super().update(gradient, learning_rate)
        self.updates += 1
        if self.updates % self.STEPS == 0:
            self.move(self.ALPHA)

    def move(self, alpha):
        with torch.no_grad():
            self.slow.lerp_(self.parameter, alpha)
            self.parameter.copy_(self.slow)


class GrowingLookahead(Lookahead):
    """That of airbench96: the decay of the slow weights grows with the cube of the updates, and the end takes them."""
    LAST_DECAY, UPDATES = 0.95 ** 5, STEPS - 1

    def update(self, gradient, learning_rate):
        Torch.update(self, gradient, learning_rate)
        self.updates += 1
        if self.updates % Lookahead.STEPS == 0:
            self.move(1 - self.LAST_DECAY * (self.updates / self.UPDATES) ** 3)
        if self.updates == self.UPDATES:
            self.move(0)


class Keras:
    def __init__(self, make, start, decay, decays=False):
        self.variable = keras.Variable(start, dtype="float64")
        self.optimizer = make(weight_decay=decay) if decays else make()
        self.optimizer.build([self.variable])
        self.decays = decays

    def value(self):
        return keras.ops.convert_to_numpy(self.variable).copy()

    def update(self, gradient, learning_rate):
        self.optimizer.learning_rate = learning_rate
        self.optimizer.apply([torch.tensor(gradient, dtype=torch.float64)], [self.variable])


class TensorFlow1:
    decays = False

    def __init__(self, make, start, decay):
        self.variable = tf.Variable(start, dtype=tf.float64)
        self.rate = 0.0
        self.optimizer = make(lambda: tf.constant(self.rate, tf.float64))

    def value(self):
        return self.variable.numpy()

    def update(self, gradient, learning_rate):
        self.rate = learning_rate
        self.optimizer.apply_gradients([(tf.constant(gradient, tf.float64), self.variable)])


class TfKeras:
    decays = False

    def __init__(self, make, start, decay):
        self.variable = tf.Variable(start, dtype=tf.float32)
        self.optimizer = make()

    def value(self):
        return self.variable.numpy()

    def update(self, gradient, learning_rate):
        self.optimizer.learning_rate = learning_rate
        self.optimizer.apply_gradients([(tf.constant(gradient, tf.float32), self.variable)])


def run(source, ours, make):
    """ours: our optimizer and its numbers. make(start, decay) -> one of the classes above."""
    print(f"{source}: {ours}")
    parameters = [make(start, decay) for start, decay in zip(START, DECAY)]
    for step in range(STEPS):
        for p, parameter in enumerate(parameters):
            value = parameter.value()
            whole = gradient(value.astype(np.float64), step, p) + (0 if parameter.decays else DECAY[p] * value)
            if step != SKIPPED:
                parameter.update(whole, rate(step) * RATE[p])
        if step in SHOWN:
            shown = [parameter.shown() if hasattr(parameter, "shown") else parameter.value() for parameter in parameters]
            print(source, step, *(repr(float(v)) for values in shown for v in values))


def run_torch():
    torch.set_default_dtype(torch.float64)  # that of NAdam's product of momenta

    def of(make, **options):
        return lambda start, decay: Torch(lambda *a, **k: make(*a, **k, **options), start, decay)

    optim = torch.optim
    run("torch_momentum", f"torch_momentum {VELOCITY} dampening {DAMPENING}", of(optim.SGD, momentum=MOMENTUM, dampening=DAMPENING))
    run("torch_momentum_of_zero", f"torch_momentum momentum 0 dampening {DAMPENING}", of(optim.SGD, momentum=0, dampening=DAMPENING))
    run("torch_momentum_changed", f"torch_momentum {VELOCITY} dampening {DAMPENING} changed", lambda start, decay: TorchChangedMomentum(start, decay))
    run("torch_nesterov", f"torch_momentum {VELOCITY} nesterov 1", of(optim.SGD, momentum=MOMENTUM, nesterov=True))
    squares = {"alpha": SQUARE_DECAY, "eps": SQUARE_EPSILON, "momentum": MOMENTUM}
    run("torch_rmsprop", f"torch_rmsprop {SQUARES}", of(optim.RMSprop, **squares))
    run("torch_rmsprop_centered", f"torch_rmsprop {SQUARES} centered 1", of(optim.RMSprop, **squares, centered=True))
    run("torch_adam", f"torch_adam {MEANS}", of(optim.Adam, betas=(BETA1, BETA2), eps=EPSILON))
    run("torch_adamw", f"torch_adamw {MEANS}", of(optim.AdamW, betas=(BETA1, BETA2), eps=EPSILON))
    run("torch_nadam", f"torch_nadam {MEANS}", of(optim.NAdam, betas=(BETA1, BETA2), eps=EPSILON, momentum_decay=0.004))
    run("torch_radam", f"torch_radam {MEANS}", of(optim.RAdam, betas=(BETA1, BETA2), eps=EPSILON))
    torch.set_default_dtype(torch.float32)


def run_keras():
    keras.config.set_floatx("float64")

    def of(make, decays=False, **options):
        return lambda start, decay: Keras(lambda **k: make(0.1, **k, **options), start, decay, decays)

    optimizers = keras.optimizers
    run("keras_momentum", f"keras_momentum {VELOCITY}", of(optimizers.SGD, momentum=MOMENTUM))
    run("keras_momentum_decoupled", f"keras_momentum {VELOCITY} decoupled", of(optimizers.SGD, decays=True, momentum=MOMENTUM))
    run("keras_nesterov", f"keras_momentum {VELOCITY} nesterov 1", of(optimizers.SGD, momentum=MOMENTUM, nesterov=True))
    squares = {"rho": SQUARE_DECAY, "epsilon": SQUARE_EPSILON, "momentum": MOMENTUM}
    run("keras_rmsprop", f"keras_rmsprop {SQUARES}", of(optimizers.RMSprop, **squares))
    run("keras_rmsprop_centered", f"keras_rmsprop {SQUARES} centered 1", of(optimizers.RMSprop, **squares, centered=True))
    means = {"beta_1": BETA1, "beta_2": BETA2, "epsilon": EPSILON}
    run("keras_adam", f"tf_adam {MEANS}", of(optimizers.Adam, **means))
    run("keras_adamw", f"keras_adamw {MEANS}", of(optimizers.AdamW, decays=True, **means))
    run("keras_nadam", f"keras_nadam {MEANS}", of(optimizers.Nadam, **means))


def run_tensorflow():
    train = tf.compat.v1.train

    def double(value):
        return tf.constant(value, tf.float64)

    def of(make, **options):
        return lambda start, decay: TensorFlow1(lambda rate: make(rate, **options), start, decay)

    run("tf_sgd", "sgd", of(train.GradientDescentOptimizer))
    run("tf_momentum", f"tf_momentum {VELOCITY}", of(train.MomentumOptimizer, momentum=double(MOMENTUM)))
    run("tf_nesterov", f"tf_nesterov {VELOCITY}", of(train.MomentumOptimizer, momentum=double(MOMENTUM), use_nesterov=True))
    squares = {"decay": double(SQUARE_DECAY), "momentum": double(MOMENTUM), "epsilon": double(SQUARE_EPSILON)}
    run("tf_rmsprop", f"tf_rmsprop {SQUARES}", of(train.RMSPropOptimizer, **squares))
    run("tf_rmsprop_centered", f"tf_rmsprop {SQUARES} centered 1", of(train.RMSPropOptimizer, **squares, centered=True))
    run("tf_adam", f"tf_adam {MEANS}", of(train.AdamOptimizer, beta1=double(BETA1), beta2=double(BETA2), epsilon=double(EPSILON)))


def run_tf_keras():
    nadam = tf_keras.optimizers.legacy.Nadam
    run("tf_keras_nadam", f"torch_nadam {MEANS} float",
        lambda start, decay: TfKeras(lambda: nadam(0.1, beta_1=BETA1, beta_2=BETA2, epsilon=EPSILON), start, decay))


def run_packages():
    def free(make, result, **options):
        return lambda start, decay: ScheduleFree(lambda *a, **k: make(*a, **k, **options), start, decay, result)

    for result, word in ((False, ""), (True, " result")):
        name = "_x" if result else ""
        run(f"schedule_free_sgd{name}", f"schedule_free_sgd {VELOCITY}{word}",
            free(schedulefree.SGDScheduleFree, result, momentum=MOMENTUM))
        run(f"schedule_free_adamw{name}", f"schedule_free_adamw {MEANS}{word}",
            free(schedulefree.AdamWScheduleFree, result, betas=(BETA1, BETA2), eps=EPSILON))
    run("lion", f"lion beta1 {BETA1} beta2 {BETA2}",
        lambda start, decay: Torch(lambda *a, **k: lion_pytorch.Lion(*a, **k, betas=(BETA1, BETA2)), start, decay))
    run("lookahead", f"torch_momentum {VELOCITY} nesterov 1 lookahead",
        lambda start, decay: Lookahead(lambda *a, **k: torch.optim.SGD(*a, **k, momentum=MOMENTUM, nesterov=True), start, decay))
    run("lookahead_growing", f"torch_momentum {VELOCITY} nesterov 1 lookahead_growing",
        lambda start, decay: GrowingLookahead(lambda *a, **k: torch.optim.SGD(*a, **k, momentum=MOMENTUM, nesterov=True), start, decay))


if ONLY_TORCH:
    run_torch()
    sys.exit()
if ONLY_PACKAGES:
    run_packages()
    sys.exit()
print(f"# tools/golden/optimizers.py: torch {torch.__version__}, keras {keras.__version__}, "
      f"tensorflow {tf.__version__}, tf_keras {tf_keras.__version__}")
run_torch()
run_keras()
run_tensorflow()
run_tf_keras()
run_packages()
