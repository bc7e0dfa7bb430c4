"""Throwaway machines for what this one can't do, such as real RDMA verbs."""
