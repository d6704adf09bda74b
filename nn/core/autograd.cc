#include "nn/core/autograd.h"

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace dlaunch::nn {

// A recorded operation. Its edges lead to where the inputs came from.
class Node {
 public:
  struct Edge {
    Shape shape;                 // of the input
    DType dtype = DType::kF32;   // of the input
    std::shared_ptr<Node> node;  // the operation that made it, or
    Tensor leaf;                 // the leaf that it is; neither: needs no gradient

    bool needed() const { return node != nullptr || leaf.defined(); }
  };

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();

  std::unique_ptr<Function> function;  // null once the graph was walked
  std::vector<Edge> edges;
  int label = -1;  // for a BackwardObserver
};

// One after the other what only this node has kept: each within the one before would not fit on the
// stack if the graph is a long chain.
Node::~Node() {
  std::vector<std::shared_ptr<Node>> unused;
  const auto take_from = [&unused](Node& node) {
    for (Edge& edge : node.edges)
      if (edge.node != nullptr) unused.push_back(std::move(edge.node));
  };
  take_from(*this);
  while (!unused.empty()) {
    const std::shared_ptr<Node> node = std::move(unused.back());
    unused.pop_back();
    if (node.use_count() == 1) take_from(*node);
  }
}

namespace {

thread_local bool recording = true;

class EdgesContext : public BackwardContext {
 public:
  explicit EdgesContext(const std::vector<Node::Edge>& edges) : edges_(edges) {}
  bool needs(std::size_t i) const override { return edges_.at(i).needed(); }
  Tensor accumulate_into(std::size_t i) const override {
    const Tensor& leaf = edges_.at(i).leaf;
    return leaf.defined() ? leaf.grad() : Tensor();
  }

 private:
  const std::vector<Node::Edge>& edges_;
};

void add_to(const Tensor& sum, const Tensor& gradient) {
  sum.backend().add(sum.size(), sum.read(), gradient.read(), sum.write());
}

// One walk over a graph.
class Walk {
 public:
  Walk(const std::shared_ptr<Node>& root, const BackwardOptions& options) : options_(options) {
    sort(root);
  }

  void run(Tensor gradient) {
    pending_[order_.back().get()] = std::move(gradient);
    while (!order_.empty()) {
      const std::shared_ptr<Node> node = std::move(order_.back());
      order_.pop_back();
      visit(*node);
      node->function.reset();
      node->edges.clear();
    }
  }

 private:
  // Depth first, so that order_ ends up with every node behind all nodes that it depends on; and
  // counts how often each leaf is used.
  void sort(const std::shared_ptr<Node>& root) {
    struct Frame {
      std::shared_ptr<Node> node;
      std::size_t next_edge = 0;
    };
    std::unordered_set<const Node*> seen{root.get()};
    std::vector<Frame> path;
    path.push_back({root});
    while (!path.empty()) {
      Frame& frame = path.back();
      if (frame.next_edge == frame.node->edges.size()) {
        order_.push_back(std::move(frame.node));
        path.pop_back();
        continue;
      }
      const Node::Edge& edge = frame.node->edges[frame.next_edge++];
      if (edge.leaf.defined()) ++leaf_uses_[edge.leaf.id()];
      if (edge.node && seen.insert(edge.node.get()).second) {
        if (!edge.node->function) throw Error("backward: part of the graph was walked before");
        path.push_back({edge.node});
      }
    }
  }

  void visit(Node& node) {
    Tensor gradient = std::move(pending_[&node]);
    pending_.erase(&node);
    std::vector<Tensor> gradients(node.edges.size());
    if (gradient.defined()) {
      gradients = differentiate(node, std::move(gradient));
    }
    if (gradients.size() != node.edges.size()) {
      throw Error(std::string(node.function->name()) +
                  " backward: " + std::to_string(gradients.size()) + " gradients for " +
                  std::to_string(node.edges.size()) + " inputs");
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      Node::Edge& edge = node.edges[i];
      check_gradient(*node.function, edge, gradients[i]);
      if (edge.node) {
        add_pending(pending_[edge.node.get()], std::move(gradients[i]));
      } else if (edge.leaf.defined()) {
        add_to_leaf(edge.leaf, std::move(gradients[i]));
      }
    }
  }

  std::vector<Tensor> differentiate(Node& node, Tensor gradient) const {
    Function& function = *node.function;
    BackwardObserver* const observer = options_.observer;
    if (observer != nullptr) observer->operation_begins(node.label, function.name());
    std::vector<Tensor> gradients =
        function.backward(std::move(gradient), EdgesContext(node.edges));
    if (observer != nullptr) observer->operation_ended(node.label, function.name(), gradients);
    return gradients;
  }

  static void check_gradient(const Function& function, const Node::Edge& edge,
                             const Tensor& gradient) {
    if (!gradient.defined() || !edge.needed()) return;
    if (gradient.shape() == edge.shape && gradient.dtype() == edge.dtype) return;
    throw Error(std::string(function.name()) + " backward: gradient " +
                gradient.shape().to_string() + " " + std::string(to_string(gradient.dtype())) +
                " for an input " + edge.shape.to_string() + " " +
                std::string(to_string(edge.dtype)));
  }

  static void add_pending(Tensor& sum, Tensor gradient) {
    if (!gradient.defined()) return;
    if (!sum.defined()) {
      sum = std::move(gradient);
      return;
    }
    if (!sum.sole_owner()) {
      if (gradient.sole_owner()) {
        std::swap(sum, gradient);
      } else {
        sum = copy_of(sum);
      }
    }
    add_to(sum, gradient);
  }

  void add_to_leaf(Tensor& leaf, Tensor gradient) {
    const Tensor sum = leaf.grad();
    if (gradient.defined() && !gradient.same_as(sum)) {
      if (sum.defined()) {
        add_to(sum, gradient);
      } else {
        leaf.set_grad(gradient.sole_owner() ? std::move(gradient) : copy_of(gradient));
      }
    }
    if (--leaf_uses_[leaf.id()] == 0 && options_.on_gradient_ready) {
      options_.on_gradient_ready(leaf);
    }
  }

  const BackwardOptions& options_;
  std::vector<std::shared_ptr<Node>> order_;
  std::unordered_map<const Node*, Tensor> pending_;  // gradients of results, still being summed up
  std::unordered_map<const void*, std::int64_t> leaf_uses_;  // by Tensor::id(), still to come
};

}  // namespace

Tensor gradient_sum(const BackwardContext& context, std::size_t i, Backend& backend,
                    const Shape& shape) {
  Tensor sum = context.accumulate_into(i);
  return sum.defined() ? sum : Tensor::zeros(backend, shape);
}

bool is_recording(std::initializer_list<Tensor> inputs) {
  if (!recording) return false;
  for (const Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) return true;
  }
  return false;
}

void record(Tensor& output, std::initializer_list<Tensor> inputs,
            std::unique_ptr<Function> function) {
  auto node = std::make_shared<Node>();
  node->function = std::move(function);
  for (const Tensor& input : inputs) {
    Node::Edge edge;
    if (input.defined() && input.requires_grad()) {
      edge.shape = input.shape();
      edge.dtype = input.dtype();
      if (input.is_leaf()) {
        edge.leaf = input;
      } else {
        edge.node = input.node();
      }
    }
    node->edges.push_back(std::move(edge));
  }
  output.set_node(std::move(node));
}

void label_operations(const Tensor& output, int label) {
  std::vector<Node*> open{output.node().get()};
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    if (node == nullptr || node->label >= 0) continue;
    node->label = label;
    for (const Node::Edge& edge : node->edges) open.push_back(edge.node.get());
  }
}

void require_graph(const Tensor& loss) {
  const std::shared_ptr<Node>& root = loss.node();
  if (!root) throw Error("backward: the tensor is not the result of a recorded operation");
  if (!root->function) throw Error("backward: the graph was walked before");
}

void backward(const Tensor& loss, const BackwardOptions& options) {
  require_graph(loss);
  Tensor gradient = options.gradient;
  if (!gradient.defined()) {
    if (loss.size() != 1 || loss.dtype() != DType::kF32) {
      throw Error("backward: a loss is one element of f32, not " + loss.shape().to_string() +
                  " of " + std::string(to_string(loss.dtype())));
    }
    gradient = Tensor::empty(loss.backend(), loss.shape());
    loss.backend().fill(1, 1.0F, gradient.data<float>());
  } else if (gradient.shape() != loss.shape() || gradient.dtype() != loss.dtype()) {
    throw Error("backward: gradient " + gradient.shape().to_string() + " for a loss " +
                loss.shape().to_string());
  }
  const NoGradGuard guard;
  Walk(loss.node(), options).run(std::move(gradient));
}

NoGradGuard::NoGradGuard() : before_(std::exchange(recording, false)) {}
NoGradGuard::~NoGradGuard() {
  recording = before_;
}

}  // namespace dlaunch::nn
