// A folder of images: one folder per class, whose name is the class's, with image files in it.
// Files are decoded when they are asked for.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "nn/data/dataset.h"

namespace dlaunch::nn {

/// All images come out in the size `resize_to`; without it they must all have the same size.
/// Classes and files are in the order of their names; hidden files are left out, and so is what is
/// of another kind: files that are no images, folders in a class, files beside the classes. Of that
/// the set has a remark(). Throws DataError: no folder, no classes, a class without images, an
/// unreadable header, unequal sizes.
std::unique_ptr<Dataset> open_image_folder(const std::string& directory,
                                           std::optional<ImageShape> resize_to);

}  // namespace dlaunch::nn
