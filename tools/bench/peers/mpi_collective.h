// One of MPI's collectives with its buffers, as tools/bench/collective_run.h has one of ours: the
// same sizes and the same values, rank 0 the root.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "tools/bench/measure/ranks.h"
#include "tools/bench/measure/values.h"

namespace dlaunch::bench {

struct MpiBuffers {
  float* input;
  float* output;  // not used in place
  int count;      // of the whole
  int part;       // of a rank, where the whole is divided
};

struct MpiKind {
  const char* name;
  void (*run)(const MpiBuffers&);
  bool in_place = false;
  bool sums = false;
  bool divided = false;
  bool part_sent = false;       // a rank has a part before
  bool part_received = false;   // ... or after
  bool takes_own_part = false;  // of what others have, the part of its own number
  bool from_root = false;
  bool to_root = false;
};

inline constexpr MpiKind kMpiKinds[] = {
    {.name = "allreduce",
     .run =
         [](const MpiBuffers& b) {
           MPI_Allreduce(MPI_IN_PLACE, b.input, b.count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
         },
     .in_place = true,
     .sums = true},
    {.name = "broadcast",
     .run = [](const MpiBuffers& b) { MPI_Bcast(b.input, b.count, MPI_FLOAT, 0, MPI_COMM_WORLD); },
     .in_place = true,
     .from_root = true},
    {.name = "reduce",
     .run =
         [](const MpiBuffers& b) {
           MPI_Reduce(b.input, b.output, b.count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
         },
     .sums = true,
     .to_root = true},
    {.name = "allgather",
     .run =
         [](const MpiBuffers& b) {
           MPI_Allgather(b.input, b.part, MPI_FLOAT, b.output, b.part, MPI_FLOAT, MPI_COMM_WORLD);
         },
     .divided = true,
     .part_sent = true},
    {.name = "reducescatter",
     .run =
         [](const MpiBuffers& b) {
           MPI_Reduce_scatter_block(b.input, b.output, b.part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
         },
     .sums = true,
     .divided = true,
     .part_received = true,
     .takes_own_part = true},
    {.name = "alltoall",
     .run =
         [](const MpiBuffers& b) {
           MPI_Alltoall(b.input, b.part, MPI_FLOAT, b.output, b.part, MPI_FLOAT, MPI_COMM_WORLD);
         },
     .divided = true,
     .takes_own_part = true},
    {.name = "gather",
     .run =
         [](const MpiBuffers& b) {
           MPI_Gather(b.input, b.part, MPI_FLOAT, b.output, b.part, MPI_FLOAT, 0, MPI_COMM_WORLD);
         },
     .divided = true,
     .part_sent = true,
     .to_root = true},
    {.name = "scatter",
     .run =
         [](const MpiBuffers& b) {
           MPI_Scatter(b.input, b.part, MPI_FLOAT, b.output, b.part, MPI_FLOAT, 0, MPI_COMM_WORLD);
         },
     .divided = true,
     .part_received = true,
     .takes_own_part = true,
     .from_root = true},
};

/// Null if there is none of this name.
inline const MpiKind* mpi_kind(const std::string& name) {
  const auto* const found = std::find_if(std::begin(kMpiKinds), std::end(kMpiKinds),
                                         [&](const MpiKind& kind) { return name == kind.name; });
  return found == std::end(kMpiKinds) ? nullptr : found;
}

class MpiCollective {
 public:
  /// Of float: `count` elements of the greatest buffer involved, rounded as ours are.
  MpiCollective(const Ranks& ranks, const MpiKind& kind, std::size_t count)
      : ranks_(ranks),
        kind_(kind),
        part_(std::max<std::size_t>(count / static_cast<std::size_t>(ranks.size()), 1)),
        count_(kind.divided ? part_ * static_cast<std::size_t>(ranks.size()) : count),
        input_(kind.part_sent ? part_ : count_),
        output_(kind.in_place        ? 0
                : kind.part_received ? part_
                                     : count_),
        all_(static_cast<std::size_t>(ranks.size())) {
    std::iota(all_.begin(), all_.end(), 0);
  }

  std::size_t count() const { return count_; }

  void prepare(std::uint64_t repetition) {
    if (kind_.from_root && kind_.in_place && ranks_.rank() != 0) return clear();
    fill_floats(input_.data(), input_.size(), ranks_.rank(), repetition);
    std::fill(output_.begin(), output_.end(), 0.0F);
  }

  /// For operations back to back: sums of sums would overflow.
  void clear() { std::fill(input_.begin(), input_.end(), 0.0F); }

  void run() {
    kind_.run({input_.data(), output_.data(), static_cast<int>(count_), static_cast<int>(part_)});
  }

  /// The greatest relative error of what this rank received.
  double error(std::uint64_t repetition) const {
    if (kind_.to_root && ranks_.rank() != 0) return 0;
    const std::vector<float>& result = kind_.in_place ? input_ : output_;
    const std::size_t first =
        kind_.takes_own_part ? static_cast<std::size_t>(ranks_.rank()) * part_ : 0;
    if (kind_.sums || kind_.from_root) {
      const std::span<const int> sources(all_.data(), kind_.sums ? all_.size() : 1);
      return error_of_float_sums(result.data(), result.size(), sources, first, repetition);
    }
    double worst = 0;
    for (std::size_t rank = 0; rank < all_.size(); ++rank) {  // a part of each
      const double error = error_of_float_sums(result.data() + rank * part_, part_,
                                               {all_.data() + rank, 1}, first, repetition);
      worst = std::max(worst, error);
    }
    return worst;
  }

 private:
  const Ranks& ranks_;
  const MpiKind& kind_;
  std::size_t part_;
  std::size_t count_;
  std::vector<float> input_;
  std::vector<float> output_;  // empty: in place
  std::vector<int> all_;
};

}  // namespace dlaunch::bench
