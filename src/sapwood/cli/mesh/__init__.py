"""`sapwood mesh`: plan, set up, watch and change a mesh of brokers."""

from sapwood.cli.mesh.mesh_commands import mesh
from sapwood.cli.mesh.mesh_plan import plan

mesh.command("plan")(plan)

__all__ = ["mesh"]
