#include "nn/cpu/matmul.h"

#include <cstring>
#include <string>

#include "nn/core/error.h"
#include "nn/core/widened.h"
#include "nn/cpu/kernels.h"

namespace dlaunch::nn::cpu {
namespace {

// More shapes than any network has; reached only by programs that go through many.
constexpr std::size_t kMostPlans = 512;

}  // namespace

Products::Products(CachingAllocator& allocator)
    : allocator_(allocator), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

std::size_t Products::KeyHash::operator()(const Key& key) const {
  std::size_t hash = (static_cast<std::size_t>(key.factors) << 8) +
                     (static_cast<std::size_t>(key.sums) << 4) + (key.transpose_a ? 4 : 0) +
                     (key.transpose_b ? 2 : 0) + (key.accumulate ? 1 : 0);
  for (const std::int64_t value : {key.m, key.n, key.k})
    hash = hash * 0x9E3779B97F4A7C15U + static_cast<std::size_t>(value);
  return hash ^ (hash >> 29);
}

const Prepared<dnnl::matmul>& Products::plan(const Key& key) {
  if (const auto known = plans_.find(key); known != plans_.end()) return known->second;
  if (plans_.size() >= kMostPlans) plans_.clear();
  const ProductDescriptor product{.count = 1,
                                  .m = key.m,
                                  .n = key.n,
                                  .k = key.k,
                                  .transposed_a = key.transpose_a,
                                  .transposed_b = key.transpose_b,
                                  .adding = key.accumulate,
                                  .factors = key.factors,
                                  .sums = key.sums};
  return plans_.emplace(key, describe_products(engine_, product)).first->second;
}

void Products::run(const MatmulArguments& arg) {
  if (arg.m == 0 || arg.n == 0) return;
  if (arg.k == 0) {
    const auto bytes = static_cast<std::size_t>(arg.m * arg.n) * size_of(arg.c.dtype);
    if (!arg.accumulate) std::memset(arg.c.data, 0, bytes);
    return;
  }
  if (!computes_in(arg.a.dtype))
    return matmul_widened(allocator_, convert, arg,
                          [this](const MatmulArguments& widened) { run(widened); });
  try {
    const auto& product = plan({arg.m, arg.n, arg.k, arg.transpose_a, arg.transpose_b,
                                arg.accumulate, arg.a.dtype, arg.c.dtype});
    const auto& description = product.description;
    const auto over = [&](const dnnl::memory::desc& layout, const void* data) {
      return memory_over(engine_, layout, data);
    };
    product.execute({engine_, stream_, allocator_},
                    {{DNNL_ARG_SRC, over(description.src_desc(), arg.a.data)},
                     {DNNL_ARG_WEIGHTS, over(description.weights_desc(), arg.b.data)},
                     {DNNL_ARG_DST, over(description.dst_desc(), arg.c.data)}});
    stream_.wait();
  } catch (const dnnl::error& error) {
    throw Error("matmul [" + std::to_string(arg.m) + ", " + std::to_string(arg.k) + "] x [" +
                std::to_string(arg.k) + ", " + std::to_string(arg.n) +
                "]: oneDNN: " + error.what());
  }
}

}  // namespace dlaunch::nn::cpu
