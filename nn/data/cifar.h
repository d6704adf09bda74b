// CIFAR-10 and CIFAR-100 in the official binary layout (Krizhevsky 2009,
// https://www.cs.toronto.edu/~kriz/cifar.html): records of one or two label bytes and 3 x 32 x 32
// bytes of pixels, red, green and blue planes one after the other.
//
// Labels are read and checked at the start; pixels are read from the files when they are asked for,
// so that ranks share the system's page cache instead of holding a copy each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/data/dataset.h"

namespace dlaunch::nn {

/// What distinguishes one set from another.
struct CifarLayout {
  std::vector<std::string> files;  // paths
  std::size_t records_per_file = 0;
  std::size_t label_bytes = 1;  // the last one is the label: CIFAR-100's fine label
  std::size_t classes = 10;
  std::string class_names_file;  // one name per line; may be missing
  std::string advice;            // what to do about bad files, the end of every error message
};

enum class CifarSet { kCifar10, kCifar100 };
enum class Split { kTrain, kTest };

/// Where the official archives put the files of a set below `directory`.
CifarLayout cifar_layout(CifarSet set, Split split, const std::string& directory);

/// Throws DataError for files that are missing or of the wrong size, and for labels out of range.
std::unique_ptr<Dataset> open_cifar(const CifarLayout& layout);

}  // namespace dlaunch::nn
