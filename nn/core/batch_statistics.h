// The arithmetic by which per-channel statistics of a batch are packed, summed over ranks and
// unpacked. Pure functions of plain numbers, usable from any thread and (being constexpr) from
// device code.
//
// A part of the batch (a rank's share of it) with n samples, mean m and centred second moment
// M2 = sum (x - m)^2 travels as three numbers that add up over the parts:
//
//   n,   A = n m,   Q = M2 + n m^2
//
// and the sums give the whole batch's mean A / n and M2 = Q - A^2 / n. In double precision the
// subtraction costs a relative error of about (m / s)^2 * 1e-16 for a standard deviation s: 1e-10
// at m = 1000 s, and always less than float input can resolve, because what is summed in float are
// differences from a value near the part's mean. An empty part is three zeros. So unequal and empty
// parts are exact.
#pragma once

namespace dlaunch::nn {

/// Mean and centred second moment of one channel.
struct Moments {
  double mean = 0;
  double m2 = 0;
};

/// What travels of a channel: both members add up over parts of a batch.
struct PackedMoments {
  double sum = 0;         // n m
  double square_sum = 0;  // M2 + n m^2
};

/// Of `count` values, from the sums of (x - shift) and (x - shift)^2. The nearer the shift is to
/// the mean, the less is lost in these two; here nothing is, and nothing is divided.
constexpr PackedMoments pack(double shift, double count, double sum, double square_sum) {
  return {.sum = sum + count * shift, .square_sum = square_sum + shift * (2 * sum + count * shift)};
}

constexpr Moments unpack(double count, const PackedMoments& total) {
  if (count <= 0) return {};
  const double mean = total.sum / count;
  const double m2 = total.square_sum - mean * total.sum;
  return {.mean = mean, .m2 = m2 < 0 ? 0 : m2};  // a NaN stays one
}

/// 1 of no values: an empty part then has nothing infinite, whatever the eps.
constexpr double biased_variance(double count, double m2) {
  return count > 0 ? m2 / count : 1;
}

/// The estimate of the population's variance from a sample: M2 / (N - 1). N must be above 1.
constexpr double unbiased_variance(double count, double m2) {
  return m2 / (count - 1);
}

/// Of one channel, what its running statistics move towards: the means over the parts of the batch
/// that have values.
struct PartMeans {
  double parts = 0;
  double mean_sum = 0;
  double variance_sum = 0;

  constexpr void add(double count, const Moments& moments) {
    if (count == 0) return;
    ++parts;
    mean_sum += moments.mean;
    variance_sum += unbiased_variance(count, moments.m2);
  }
  constexpr void move(float& mean, float& variance, double momentum) const {
    if (parts == 0) return;
    mean = moved_towards(mean, mean_sum / parts, momentum);
    variance = moved_towards(variance, variance_sum / parts, momentum);
  }

 private:
  static constexpr float moved_towards(float running, double value, double momentum) {
    return static_cast<float>((1 - momentum) * static_cast<double>(running) + momentum * value);
  }
};

}  // namespace dlaunch::nn
