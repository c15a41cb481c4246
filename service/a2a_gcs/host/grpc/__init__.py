"""A2A over gRPC: 1.0 and 0.3 on one server, from the request handler of the other bindings."""

from a2a_gcs.host.grpc.server import GrpcServer

__all__ = ["GrpcServer"]
