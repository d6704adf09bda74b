#include "tests/cuda_on_host/cudnn_object.h"

#include <optional>
#include <utility>

namespace dlaunch::cuda_on_host {
namespace {

/// An attribute that has to be set, all elements at once.
struct Wanted {
  cudnnBackendAttributeType_t type;
  std::int64_t count = 1;
  std::optional<cudnnBackendDescriptorType_t> refers_to = {};
};
using WantedAttributes = std::map<cudnnBackendAttributeName_t, Wanted>;

Wanted object_of(cudnnBackendDescriptorType_t type) {
  return {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, type};
}

/// Of an operation; the names follow one another.
WantedAttributes of_operation(cudnnBackendAttributeName_t alpha) {
  WantedAttributes wanted;
  const auto name = [&](int number) {
    return static_cast<cudnnBackendAttributeName_t>(alpha + number);
  };
  wanted[name(0)] = wanted[name(1)] = {CUDNN_TYPE_FLOAT};
  wanted[name(2)] = object_of(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  for (const int tensor : {3, 4, 5})
    wanted[name(tensor)] = object_of(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  return wanted;
}

std::map<cudnnBackendDescriptorType_t, WantedAttributes> make_all_wanted() {
  std::map<cudnnBackendDescriptorType_t, WantedAttributes> all;
  all[CUDNN_BACKEND_TENSOR_DESCRIPTOR] = {{CUDNN_ATTR_TENSOR_UNIQUE_ID, {CUDNN_TYPE_INT64}},
                                          {CUDNN_ATTR_TENSOR_DATA_TYPE, {CUDNN_TYPE_DATA_TYPE}},
                                          {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {CUDNN_TYPE_INT64}},
                                          {CUDNN_ATTR_TENSOR_DIMENSIONS, {CUDNN_TYPE_INT64, 4}},
                                          {CUDNN_ATTR_TENSOR_STRIDES, {CUDNN_TYPE_INT64, 4}}};
  all[CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR] = {
      {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, {CUDNN_TYPE_DATA_TYPE}},
      {CUDNN_ATTR_CONVOLUTION_CONV_MODE, {CUDNN_TYPE_CONVOLUTION_MODE}},
      {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {CUDNN_TYPE_INT64}},
      {CUDNN_ATTR_CONVOLUTION_DILATIONS, {CUDNN_TYPE_INT64, 2}},
      {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {CUDNN_TYPE_INT64, 2}},
      {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {CUDNN_TYPE_INT64, 2}},
      {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {CUDNN_TYPE_INT64, 2}}};
  all[CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR] =
      of_operation(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA);
  all[CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR] =
      of_operation(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA);
  all[CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR] =
      of_operation(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA);
  // Of some operation: which one the graph's checks see.
  all[CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR] = {
      {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, {CUDNN_TYPE_HANDLE}},
      {CUDNN_ATTR_OPERATIONGRAPH_OPS, {CUDNN_TYPE_BACKEND_DESCRIPTOR}}};
  all[CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR] = {
      {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, object_of(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)},
      {CUDNN_ATTR_ENGINEHEUR_MODE, {CUDNN_TYPE_HEUR_MODE}}};
  all[CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR] = {
      {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, {CUDNN_TYPE_HANDLE}},
      {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, object_of(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)}};
  all[CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR] = {
      {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {CUDNN_TYPE_INT64, 3}},
      {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {CUDNN_TYPE_VOID_PTR, 3}},
      {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {CUDNN_TYPE_VOID_PTR}}};
  return all;
}

const WantedAttributes& wanted_by(cudnnBackendDescriptorType_t type) {
  static const auto all = make_all_wanted();
  const auto found = all.find(type);
  require(found != all.end(),
          "descriptors of type " + std::to_string(type) + " are cuDNN's to make");
  return found->second;
}

std::size_t size_of_element(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
      return sizeof(std::int64_t);
    case CUDNN_TYPE_FLOAT:
      return sizeof(float);
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
      return sizeof(void*);
    default:
      return sizeof(int);  // enumerations
  }
}

}  // namespace

void CudnnObject::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                      std::int64_t count, const void* elements) {
  const std::string which = "attribute " + std::to_string(name);
  require(!finalised_, which + " is set after its descriptor was finalised");
  const WantedAttributes& wanted = wanted_by(type_);
  const auto found = wanted.find(name);
  require(found != wanted.end(), which + " is none of a descriptor " + std::to_string(type_));
  require(type == found->second.type, which + " is of another type");
  require(count == found->second.count, which + " has another number of elements");
  require(elements != nullptr, which + " has no elements");
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto* reference =
        static_cast<const CudnnReference*>(*static_cast<const cudnnBackendDescriptor_t*>(elements));
    require(reference != nullptr, which + " is no descriptor");
    require(reference->object->finalised(), which + " is not finalised",
            CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    require(
        found->second.refers_to.value_or(reference->object->type()) == reference->object->type(),
        which + " is a descriptor of another type");
    objects_[name] = reference->object;
  } else {
    const auto* bytes = static_cast<const std::byte*>(elements);
    values_[name].assign(bytes, bytes + static_cast<std::size_t>(count) * size_of_element(type));
  }
}

void CudnnObject::require_all() const {
  require(!finalised_, "a descriptor is finalised twice");
  for (const auto& [name, wanted] : wanted_by(type_)) {
    const bool is_set = wanted.type == CUDNN_TYPE_BACKEND_DESCRIPTOR ? objects_.contains(name)
                                                                     : values_.contains(name);
    require(is_set, "attribute " + std::to_string(name) + " is not set");
  }
}

}  // namespace dlaunch::cuda_on_host
