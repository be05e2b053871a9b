"""`sapwood mesh`: set up, watch and change a mesh of brokers."""

from sapwood.cli.mesh.mesh_commands import mesh

__all__ = ["mesh"]
