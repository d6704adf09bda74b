#include "trainers/training/compression_memory.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nn/checkpoint/safetensors.h"
#include "nn/cpu/cpu_backend.h"
#include "runtime/base/temporary_folder.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch {
namespace {

using testing::run_threads_as_ranks;

TEST(CompressionMemory, GoesThroughACheckpointToAsManyRanksOrAsASumToTheFirst) {
  using Errors = std::vector<float>;
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/memory.safetensors";
  const std::vector<Errors> written{{1, 2, 3}, {10, 20, 30}};
  const Errors factors{5, 6};
  run_threads_as_ranks(2, [&](Communicator& world) {
    const auto backend = nn::make_cpu_backend();
    CompressionMemory memory(*backend, world);
    memory.gather({.errors = written[static_cast<std::size_t>(world.rank())],
                   .factors = factors,
                   .random = 7});
    EXPECT_EQ(memory.tensors().size(), world.rank() == 0 ? 3U : 0U);
    if (world.rank() != 0) return;
    nn::Snapshot snapshot;
    snapshot.take(memory.tensors());
    snapshot.write(path, {});
  });
  for (const int ranks : {1, 2, 3})
    run_threads_as_ranks(ranks, [&](Communicator& world) {
      const auto backend = nn::make_cpu_backend();
      CompressionMemory memory(*backend, world);
      if (world.rank() == 0) {
        const nn::SafetensorsFile file(path);
        memory.prepare(file, true);
        nn::load_tensors(file, memory.tensors());
      }
      const ExchangeMemory own = memory.scatter();
      const Errors sum = world.rank() == 0 ? Errors{11, 22, 33} : Errors(3);
      EXPECT_EQ(own.errors, ranks == 2 ? written[static_cast<std::size_t>(world.rank())] : sum);
      EXPECT_EQ(own.factors, factors);
      EXPECT_EQ(own.random, 7U);
    });
}

}  // namespace
}  // namespace dlaunch
