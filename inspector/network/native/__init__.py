"""Faster ways through the published network: native kernels for its two long loops, built on first use where there is a
C++ compiler, and elsewhere plain torch with gradients written out.
"""
