#include "tools/bench/explain.h"

#include <cstddef>
#include <cstdio>
#include <string>

#include "runtime/collective/cost_model.h"
#include "runtime/collective/selection.h"
#include "runtime/collective/topology.h"
#include "tools/bench/report.h"

namespace dlaunch::bench {
namespace {

TopologySummary topology_of(const Options& options) {
  return {.ranks = options.hosts * options.ranks_per_host,
          .hosts = options.hosts,
          .most_per_host = options.ranks_per_host,
          .least_per_host = options.ranks_per_host,
          .cores_per_host = options.cores,
          .shared_memory = options.transport != "tcp"};
}

std::string without_exponent(double number) {
  char text[32];
  std::snprintf(text, sizeof text, number < 1000 ? "%.4g" : "%.0f", number);
  return text;
}

void print_prediction(const Prediction& prediction) {
  std::printf("%-17s %14.2f", std::string(to_string(prediction.algorithm)).c_str(),
              prediction.seconds * 1e6);
  const char* sign = " =";
  for (const Term& term : prediction.terms) {
    std::printf("%s %s x %s ns (%s)", sign, without_exponent(term.amount).c_str(),
                without_exponent(term.each * 1e9).c_str(),
                std::string(to_string(term.effort)).c_str());
    sign = " +";
  }
  std::printf("\n");
}

}  // namespace

void explain(const Options& options, const std::string& model_path) {
  const CostModel model = model_path.empty() ? CostModel{} : read_cost_model(model_path);
  const CollectiveQuery query{.kind = options.kind,
                              .bytes = options.bytes,
                              .dtype = options.dtype,
                              .order = options.order,
                              .op = options.op,
                              .topology = topology_of(options)};
  const Algorithm choice = choose(query, model);
  const auto predictions = predict(query, model);
  std::printf("%s of %s of %s: %s x %s, %s per host, %s\n",
              std::string(to_string(options.kind)).c_str(), counted(options.bytes, "byte").c_str(),
              std::string(to_string(options.dtype)).c_str(), counted(options.hosts, "host").c_str(),
              counted(options.ranks_per_host, "rank").c_str(),
              counted(options.cores, "core").c_str(),
              query.topology.shared_memory ? "shared memory in a host" : "TCP only");
  std::printf("cost model: %s\n", model_path.empty() ? "built in" : model_path.c_str());
  if (choice == Algorithm::kAuto) {
    std::printf("there is one algorithm only\n");
  } else {
    std::printf("chosen: %s\n", std::string(to_string(choice)).c_str());
  }
  std::printf("%-17s %14s\n", "algorithm", "predicted/us");
  for (const Prediction& prediction : predictions) print_prediction(prediction);
}

}  // namespace dlaunch::bench
