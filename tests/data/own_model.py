"""A user's own model, as an experiment names it: own_model.py:build."""


def build(images):
    """Logits of ten classes from the mean of each colour."""
    import tensorflow as tf
    import tf_keras

    return tf_keras.layers.Dense(10)(tf.reduce_mean(images, axis=(1, 2)))
