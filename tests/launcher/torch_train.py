"""A stock PyTorch script: DistributedDataParallel over Gloo, configured by torchrun's environment only."""
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
assert rank == int(os.environ["RANK"]) and world == int(os.environ["WORLD_SIZE"])
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(rank)
data, wanted = torch.randn(64, 8), torch.randn(64, 1)
for _ in range(5):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(data), wanted).backward()
    optimizer.step()
own = torch.cat([p.detach().flatten() for p in model.parameters()])
all_ranks = [torch.empty_like(own) for _ in range(world)]
dist.all_gather(all_ranks, own)
assert all(torch.equal(own, other) for other in all_ranks), "the ranks' weights differ"
if rank == 0:
    print(f"{world} ranks agree after 5 steps", flush=True)
dist.destroy_process_group()
