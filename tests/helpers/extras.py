"""Commands that need an extra, and the package that each extra installs."""

MISSING = {
    "box2d": ("Box2D", "train mo-lunar-lander-v3 --out new"),
    "mujoco": ("mujoco", "train mo-hopper-v5 --out new"),
    "cluster": ("ray", "sweep sweep.toml --executor ray --out new"),
    "tensorboard": ("tensorboardX", "train fishwood-v0 --sink tensorboard --out new"),
    "wandb": ("wandb", "train fishwood-v0 --sink wandb --out new"),
    "onnx": ("onnx", "export run"),
}
SWEEP = 'env = "fishwood-v0"\n[grid]\nactor_step_size = [1.0, 2.0]\n'
"""The content of sweep.toml."""
