// Linear interpolation along one axis of an image, which when shrinking averages as far as the
// scale goes: the triangle filter. Usable from device code.
#pragma once

namespace dlaunch::nn {

/// The pixels [first, last) that make up one pixel of a smaller or larger image, and how much each
/// counts; the weights have still to be divided by their sum.
template <typename Real>
struct AxisTaps {
  Real centre = 0;
  Real radius = 1;
  int first = 0;
  int last = 0;

  constexpr Real weight(int position) const {
    const Real distance = static_cast<Real>(position) - centre;
    const Real share = (distance < 0 ? -distance : distance) / radius;
    return share < 1 ? 1 - share : Real{0};
  }
};

/// Of pixel `index` of an axis of `to` pixels, made of one of `from`. Kernels take float; double
/// is for images of any size.
template <typename Real>
constexpr AxisTaps<Real> taps_of(int index, int from, int to) {
  const Real scale = static_cast<Real>(from) / static_cast<Real>(to);
  AxisTaps<Real> taps;
  taps.radius = scale < 1 ? Real{1} : scale;
  taps.centre = (static_cast<Real>(index) + Real{0.5}) * scale - Real{0.5};
  // Casts round towards zero; pixels at the very end of the radius count nothing.
  const Real low = taps.centre - taps.radius;
  const Real high = taps.centre + taps.radius;
  taps.first = low < 0 ? 0 : static_cast<int>(low);
  taps.last = high < 0 ? 1 : static_cast<int>(high) + 1;
  if (taps.last > from) taps.last = from;
  return taps;
}

}  // namespace dlaunch::nn
