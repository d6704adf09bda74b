#include "nn/cuda/graph.h"

#include "nn/cuda/check.h"

namespace dlaunch::nn::cuda {
namespace {

class Graph final : public Recording {
 public:
  Graph(Device& device, Staging& staging, cudaGraphExec_t graph)
      : device_(device), staging_(staging), graph_(graph) {
    device_.pools().add_recording();
  }
  ~Graph() override {
    // One that is being run is destroyed when it has ended.
    ignore(cudaGraphExecDestroy(graph_));
    device_.pools().remove_recording();
  }

  void replay(std::uint64_t random_blocks) override {
    if (random_blocks != device_.random_blocks()) {
      staging_.to_device(device_.random_blocks_memory(), &random_blocks, sizeof random_blocks);
      device_.note_random_blocks(random_blocks);
    }
    check(cudaGraphLaunch(graph_, device_.stream()), "recorded kernels");
  }

 private:
  Device& device_;
  Staging& staging_;
  cudaGraphExec_t graph_;
};

/// Ends the capture that has failed.
void give_up(cudaStream_t stream) {
  cudaGraph_t broken = nullptr;
  ignore(cudaStreamEndCapture(stream, &broken));
  if (broken != nullptr) ignore(cudaGraphDestroy(broken));
  ignore(cudaGetLastError());  // what the capture has made of it
}

class WhileRecording {
 public:
  explicit WhileRecording(Device& device) : device_(device) {
    check(cudaStreamSynchronize(device_.stream()), "recording");
    device_.pools().begin_recording();
  }
  ~WhileRecording() { device_.pools().end_recording(); }
  WhileRecording(const WhileRecording&) = delete;
  WhileRecording& operator=(const WhileRecording&) = delete;

 private:
  Device& device_;
};

cudaGraph_t capture(Device& device, const std::function<void()>& work) {
  const WhileRecording recording(device);
  check(cudaStreamBeginCapture(device.stream(), cudaStreamCaptureModeRelaxed), "recording");
  try {
    work();
  } catch (...) {
    give_up(device.stream());
    throw;
  }
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(device.stream(), &graph), "recording");
  return graph;
}

cudaGraphExec_t make_executable(Device& device, const std::function<void()>& work) {
  cudaGraph_t const graph = capture(device, work);
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  ignore(cudaGraphDestroy(graph));
  check(status, "recorded kernels");
  return executable;
}

}  // namespace

std::unique_ptr<Recording> record_graph(Device& device, Staging& staging,
                                        const std::function<void()>& work) {
  try {
    return std::make_unique<Graph>(device, staging, make_executable(device, work));
  } catch (...) {
    device.note_failed_recording();
    device.pools().give_up_recording();
    throw;
  }
}

}  // namespace dlaunch::nn::cuda
