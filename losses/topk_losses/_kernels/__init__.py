"""Triton kernels for CUDA tensors, behind the losses' own functions; Triton is imported when one is first needed."""
