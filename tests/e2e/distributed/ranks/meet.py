"""What two ranks say to each other; each writes what it heard."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import closing
from pathlib import Path

import torch
from torch import distributed as dist

from gpubench_plugin.ranks.process_group import ProcessGroup
from gpubench_plugin.ranks.world import World
from tests.e2e.distributed.ranks.listeners import listeners, on_loopback
from tests.e2e.distributed.ranks.waiting import wait_for_all

world = World.from_environment(os.environ)
heard = {}
with closing(ProcessGroup(world, device=torch.device("cpu"))) as group:
    if not world.is_root:
        time.sleep(0.2)  # the root comes first and has to wait
    heard["gathered"] = group.control.gather("name", {"rank": world.rank})
    heard["again"] = group.control.gather("name", {"twice": world.rank})
    heard["published"] = group.control.publish("verdict", {"from": 0} if world.is_root else None)
    proposal = 7 if world.is_root else 1000
    heard["decided"] = group.agreement.decide(proposal)
    group.agreement.barrier()
    total = torch.tensor(world.rank + 1.0)
    dist.all_reduce(total)
    heard["total"] = total.item()
    heard["backend"] = dist.get_backend()
    heard["off_loopback"] = [port for port in listeners() if not on_loopback(port)]
    wait_for_all(group.control, "leave")
heard["left"] = not dist.is_initialized()
with closing(ProcessGroup(world, device=torch.device("cpu"))) as second:
    heard["second"] = second.control.gather("name", {"second": world.rank})
    heard["sound"] = [second.is_healthy(30.0)]
    if not world.is_root:
        dist.barrier(async_op=True)
    heard["sound"].append(second.is_healthy(0.2))
with closing(ProcessGroup(world, device=torch.device("cpu"))) as third:
    if not world.is_root:
        dist.destroy_process_group()
    heard["sound"].append(third.is_healthy(0.2))
    wait_for_all(third.control, "leave")
Path(sys.argv[1], f"{world.rank}.json").write_text(json.dumps(heard))
