"""Native kernels for the published network's two long loops, built on first use where there is a C++ compiler."""
