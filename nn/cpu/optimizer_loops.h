// The inner loops of the optimizers on CPU, compiled for several instruction sets. No threads, no
// allocation; pointers do not overlap.
#pragma once

#include <cstdint>

#include "nn/core/optimizer_formulas.h"

namespace dlaunch::nn::cpu {

/// With d = g + decay p:   p -= rate d.
void sgd_plain(std::int64_t count, const SgdFactors& factors, const float* g, float* p);
/// v = momentum v + d,   p -= rate v.
void sgd_momentum(std::int64_t count, const SgdFactors& factors, const float* g, float* v,
                  float* p);
/// v = momentum v + d,   p -= rate (d + momentum v).
void sgd_nesterov(std::int64_t count, const SgdFactors& factors, const float* g, float* v,
                  float* p);

void adam(std::int64_t count, const AdamFactors& factors, const float* g, float* m, float* s,
          float* p);

// Of Muon, for elements [begin, end), with the directions u of muon_direction():
/// v = momentum v + g. The sum of the squares of u.
double muon_velocity(std::int64_t begin, std::int64_t end, const SgdFactors& factors, bool nesterov,
                     const float* g, float* v);
/// x = factor u, of the velocities after the step.
void muon_scaled_direction(std::int64_t begin, std::int64_t end, const SgdFactors& factors,
                           bool nesterov, float factor, const float* g, const float* v, ArrayRef x);
/// p = norm_factor p,   p -= rate (x + decay p).
void muon_step(std::int64_t begin, std::int64_t end, const SgdFactors& factors, float norm_factor,
               ConstArrayRef x, float* p);

/// a = a + weight (x - a).
void move_average(std::int64_t count, float weight, const float* x, float* a);

/// x *= factor; whether all results are finite.
bool scale_and_check(std::int64_t count, float factor, float* x);

double sum_of_squares(std::int64_t count, const float* x);

}  // namespace dlaunch::nn::cpu
