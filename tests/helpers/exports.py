"""Exported policies beside the library's own."""

import jax
import numpy as np
import onnxruntime


def outputs(file, **inputs):
    """What a file, or its content, answers to inputs, which must be all that it takes."""
    session = onnxruntime.InferenceSession(file)
    assert {each.name for each in session.get_inputs()} == set(inputs)
    return dict(zip((each.name for each in session.get_outputs()), session.run(None, inputs), strict=True))


def right(policy, rows, preferences=None, noise=None):
    """What the library gives: logits, or actions for standard normal numbers."""
    p = [None] * len(rows) if preferences is None else preferences
    seen = jax.numpy.asarray(np.stack([np.asarray(policy.see(row, each)) for row, each in zip(rows, p, strict=True)]))
    if noise is None:
        return np.asarray(policy.policy.logits(policy.trial_theta, seen))
    return policy.box(np.asarray(policy.policy.act(policy.trial_theta, seen, noise)))


def assert_close(found, expected):
    """Equal to 1e-5, and 1e-6 of the largest number: a small logit is the difference of large terms."""
    assert found.shape == expected.shape
    largest = np.abs(expected, where=np.isfinite(expected), out=np.ones_like(expected)).max()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 + 1e-6 * largest)
