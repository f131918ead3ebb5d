"""Training graphs of ONNX files. Imported only where the package onnx is."""
