// What dlaunch makes of a cluster manager's environment, and of the options for several nodes.
#include "launcher/nodes/cluster_environment.h"

#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/nodes/node_settings.h"
#include "runtime/base/token.h"

namespace dlaunch {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Lt;

using Environment = std::map<std::string, std::string>;

Variables variables_in(const Environment& environment) {
  return [environment](const char* name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  };
}

ClusterEnvironment detect(const Environment& environment, const std::string& host = "here") {
  return detect_cluster(variables_in(environment), [&] { return host; }).value_or_throw();
}

std::string value(const std::optional<Derived>& derived) {
  return derived ? derived->value : "(none)";
}

TEST(ClusterEnvironment, OutsideOfAClusterIsEmpty) {
  const auto found = detect({{"RANK", "1"},
                             {"WORLD_SIZE", "2"},
                             {"SLURM_NODEID", "0"},
                             {"SLURM_NNODES", "4"}});  // a batch script, but not under srun
  EXPECT_EQ(found.manager, "");
  EXPECT_FALSE(found.nodes);
}

const Environment kSlurm{{"SLURM_STEP_NUM_NODES", "3"}, {"SLURM_STEP_NUM_TASKS", "3"},
                         {"SLURM_NODEID", "1"},         {"SLURM_STEP_NODELIST", "c[017-019]"},
                         {"SLURM_JOB_ID", "1234567"},   {"SLURM_PROCID", "1"}};

TEST(ClusterEnvironment, OfSlurm) {
  const auto found = detect(kSlurm);
  EXPECT_EQ(found.manager, "Slurm");
  EXPECT_EQ(value(found.nodes), "3");
  EXPECT_EQ(value(found.node_rank), "1");
  EXPECT_EQ(value(found.head), "c017");
  EXPECT_EQ(found.head->source, "SLURM_STEP_NODELIST");
  EXPECT_EQ(value(found.port), "24567");
  EXPECT_EQ(value(found.job), "1234567");
}

TEST(ClusterEnvironment, StepsOfASlurmJobMeetAtPortsOfTheirOwn) {
  Environment step = kSlurm;
  step["SLURM_STEP_ID"] = "0";
  const auto first = detect(step);
  step["SLURM_STEP_ID"] = "1";
  const auto second = detect(step);
  EXPECT_EQ(value(first.job), "1234567.0");
  EXPECT_EQ(value(second.job), "1234567.1");
  EXPECT_EQ(first.port->source, "SLURM_JOB_ID and SLURM_STEP_ID");
  EXPECT_NE(value(first.port), value(second.port));
  EXPECT_THAT(std::stoi(value(second.port)), AllOf(Ge(20000), Lt(30000)));
  EXPECT_EQ(value(first.shared_port), "24567");
  EXPECT_EQ(value(second.shared_port), "24567");
}

TEST(ClusterEnvironment, OfSlurmWithSeveralTasksOnANodeIsRefused) {
  Environment several = kSlurm;
  several["SLURM_STEP_NUM_TASKS"] = "12";
  const auto found = detect_cluster(variables_in(several), [] { return std::string("here"); });
  EXPECT_EQ(found.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(found.status().to_string(), HasSubstr("12 tasks on 3 nodes"));
  EXPECT_THAT(found.status().to_string(), HasSubstr("--ntasks-per-node=1"));
}

TEST(ClusterEnvironment, FindsTheFirstHostOfSlurmsLists) {
  EXPECT_EQ(first_host("node7"), "node7");
  EXPECT_EQ(first_host("a,b,c"), "a");
  EXPECT_EQ(first_host("node[003-007,9],other"), "node003");
  EXPECT_EQ(first_host("node[9,12-14]"), "node9");
  EXPECT_EQ(first_host("rack[2-3]-node[05-06].site,x"), "rack2-node05.site");
  EXPECT_EQ(first_host("x[1-2],y"), "x1");
  EXPECT_EQ(first_host(""), "");
  EXPECT_EQ(first_host("broken[1-2"), "");
}

TEST(ClusterEnvironment, OfOpenMpi) {
  Environment variables{
      {"OMPI_COMM_WORLD_SIZE", "4"},
      {"OMPI_COMM_WORLD_RANK", "2"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
      {"OMPI_MCA_orte_hnp_uri", "11.0;tcp://10.1.0.1,192.0.2.2:391;tcp6://[f::2]:5"},
      {"PMIX_NAMESPACE", "114098177"}};
  auto found = detect(variables);
  EXPECT_EQ(found.manager, "Open MPI");
  EXPECT_EQ(value(found.nodes), "4");
  EXPECT_EQ(value(found.node_rank), "2");
  EXPECT_EQ(value(found.head), "10.1.0.1");
  EXPECT_EQ(value(found.port), "28177");
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "4";
  EXPECT_EQ(value(detect(variables).head), "127.0.0.1");
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  variables.erase("OMPI_MCA_orte_hnp_uri");
  EXPECT_EQ(value(detect(variables).head), "(none)");
  variables["PMIX_NAMESPACE"] = "prterun-host-71@1";
  found = detect(variables);
  EXPECT_EQ(value(found.job), "prterun-host-71@1");
  variables["PMIX_NAMESPACE"] = "prterun-host-72@1";
  EXPECT_NE(value(detect(variables).port), value(found.port));
}

TEST(ClusterEnvironment, OfMpich) {
  const auto found = detect({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(value(found.nodes), "2");
  EXPECT_EQ(value(found.node_rank), "1");
  EXPECT_EQ(value(found.head), "127.0.0.1");
  EXPECT_EQ(value(found.port), "29500");
}

TEST(ClusterEnvironment, OfAKubernetesIndexedJob) {
  const auto found =
      detect({{"JOB_COMPLETION_INDEX", "12"}}, "train-12.train.ns.svc.cluster.local");
  EXPECT_EQ(value(found.node_rank), "12");
  EXPECT_EQ(value(found.head), "train-0.train.ns.svc.cluster.local");
  EXPECT_FALSE(found.nodes);  // which the manifest has to say
  EXPECT_FALSE(detect({{"JOB_COMPLETION_INDEX", "12"}}, "other").head);
}

TEST(ClusterEnvironment, OfKubeflow) {
  Environment variables{{"KUBERNETES_SERVICE_HOST", "10.0.0.1"},
                        {"MASTER_ADDR", "job-master-0"},
                        {"MASTER_PORT", "23456"},
                        {"WORLD_SIZE", "3"},
                        {"RANK", "2"}};
  auto found = detect(variables);
  EXPECT_EQ(found.manager, "Kubeflow");
  EXPECT_EQ(value(found.nodes), "3");
  EXPECT_EQ(value(found.node_rank), "2");
  EXPECT_EQ(value(found.head) + ":" + value(found.port), "job-master-0:23456");
  variables["RANK"] = "0";
  variables["MASTER_ADDR"] = "localhost";
  EXPECT_EQ(value(detect(variables, "job-master-0").head), "job-master-0");
  variables["LOCAL_RANK"] = "0";  // a rank that somebody else has started
  EXPECT_EQ(detect(variables).manager, "");
}

TEST(ClusterEnvironment, OfTorchrunsVariables) {
  const auto found = detect({{"PET_NNODES", "2:4"},
                             {"PET_RDZV_ENDPOINT", "job-worker-0:29400"},
                             {"PET_NPROC_PER_NODE", "8"}});
  EXPECT_EQ(value(found.nodes), "2:4");
  EXPECT_EQ(value(found.node_rank), "(none)");
  EXPECT_EQ(value(found.head) + ":" + value(found.port), "job-worker-0:29400");
  EXPECT_EQ(value(found.ranks), "8");
  const auto without_port = detect(
      {{"PET_NNODES", "2"}, {"PET_RDZV_ENDPOINT", "job-worker-0"}, {"PET_MASTER_PORT", "23456"}});
  EXPECT_EQ(value(without_port.head) + ":" + value(without_port.port), "job-worker-0:29400");
  EXPECT_EQ(value(detect({{"PET_NNODES", "2"}, {"PET_MASTER_ADDR", "m"}}).port), "29500");
}

TEST(ClusterEnvironment, DoesNotReachThroughARankOfDlaunch) {
  Environment nested = kSlurm;
  nested["DLAUNCH_JOB_ID"] = "outer";
  EXPECT_EQ(detect(nested).manager, "");
}

class NodeSettingsTest : public ::testing::Test {
 protected:
  Result<NodeSettings> resolve(const NodeOptions& options, const Environment& cluster = {}) const {
    Environment variables = cluster;
    variables["DLAUNCH_TOKEN"] = token_to_hex(std::string(32, 't'));
    return resolve_nodes(options, detect(variables), variables_in(variables));
  }
  std::string refusal(const NodeOptions& options, const Environment& cluster = {}) const {
    const auto settings = resolve(options, cluster);
    EXPECT_EQ(settings.status().code(), StatusCode::kInvalidArgument);
    return settings.status().to_string();
  }
};

TEST_F(NodeSettingsTest, AreOneNodeUnlessSomebodySaysOtherwise) {
  const auto settings = resolve({});
  ASSERT_TRUE(settings.ok());
  EXPECT_FALSE(settings->several());
}

TEST_F(NodeSettingsTest, TakeWhatIsNotGivenFromTheClusterAndSayFromWhere) {
  const auto settings = resolve({.node_rank = "2"}, kSlurm);
  ASSERT_TRUE(settings.ok()) << settings.status().to_string();
  EXPECT_EQ(settings->least, 3);
  EXPECT_EQ(settings->most, 3);
  EXPECT_EQ(settings->node_rank, 2);
  EXPECT_EQ(settings->endpoint(), "c017:24567");
  EXPECT_EQ(settings->token, std::string(32, 't'));
  EXPECT_THAT(settings->explanation, Contains("started by: Slurm"));
  EXPECT_THAT(settings->explanation, Contains("nodes: 3, from SLURM_STEP_NUM_NODES"));
  EXPECT_THAT(settings->explanation, Contains("node rank: 2, from --node-rank"));
  EXPECT_THAT(
      settings->explanation,
      Contains("endpoint: c017:24567, host from SLURM_STEP_NODELIST, port from SLURM_JOB_ID"));
  EXPECT_THAT(settings->explanation, Contains("secret: from DLAUNCH_TOKEN"));
}

TEST_F(NodeSettingsTest, AnEndpointOfTheManagerIsForItsJobOnly) {
  Environment step = kSlurm;
  step["SLURM_STEP_ID"] = "2";
  EXPECT_EQ(resolve({}, step)->run_id, "1234567.2");
  EXPECT_EQ(resolve({.run_id = "mine"}, step)->run_id, "mine");
  // Nodes that meet where they were told may be of several steps.
  const auto told = resolve({.endpoint = "c017"}, step);
  EXPECT_EQ(told->run_id, "");
  EXPECT_EQ(told->endpoint(), "c017:24567");
}

TEST_F(NodeSettingsTest, StandaloneIsOneNodeWhateverTheClusterSays) {
  EXPECT_FALSE(resolve({.standalone = true}, kSlurm)->several());
  EXPECT_FALSE(resolve({.nodes = "1", .standalone = true}, kSlurm)->several());
  EXPECT_THAT(resolve({.nodes = "2", .standalone = true}).status().to_string(),
              HasSubstr("--standalone is for one node, --nnodes says 2"));
  EXPECT_FALSE(resolve({.nodes = "1"}, kSlurm)->several());
}

TEST_F(NodeSettingsTest, OfAnElasticJob) {
  const auto settings = resolve({.nodes = "2:5", .endpoint = "[fe80::1]:80"});
  ASSERT_TRUE(settings.ok()) << settings.status().to_string();
  EXPECT_EQ(settings->least, 2);
  EXPECT_EQ(settings->most, 5);
  EXPECT_EQ(settings->host, "[fe80::1]");
  EXPECT_FALSE(settings->node_rank);
}

TEST_F(NodeSettingsTest, TakeTorchrunsPortForAnEndpointThatHasNone) {
  const NodeOptions options{.nodes = "2", .endpoint = "host"};
  const auto settings = resolve(options);
  ASSERT_TRUE(settings.ok()) << settings.status().to_string();
  EXPECT_EQ(settings->endpoint(), "host:29400");
  EXPECT_THAT(settings->explanation,
              Contains("endpoint: host:29400, host from --rdzv-endpoint, port by default"));
  EXPECT_EQ(resolve({.nodes = "2", .endpoint = "[fd00::1]"})->endpoint(), "[fd00::1]:29400");
  EXPECT_EQ(resolve({.endpoint = "host"}, kSlurm)->endpoint(), "host:24567");
  EXPECT_EQ(resolve(options, {{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}})->endpoint(), "host:29400");
}

TEST_F(NodeSettingsTest, HaveTheAddressThatTheUserHasChosen) {
  EXPECT_EQ(resolve({.nodes = "2", .endpoint = "h:1"})->local_address, "");
  NodeOptions options{.nodes = "2", .endpoint = "h:1", .local_address = "lo"};
  const auto by_option = resolve(options, {{"DLAUNCH_INTERFACE", "nowhere0"}});
  ASSERT_TRUE(by_option.ok()) << by_option.status().to_string();
  EXPECT_EQ(by_option->local_address, "127.0.0.1");
  EXPECT_THAT(by_option->explanation,
              Contains("address of this node: 127.0.0.1, from --local-addr lo"));
  const auto by_variable =
      resolve({.nodes = "2", .endpoint = "h:1"}, {{"DLAUNCH_INTERFACE", "127.0.0.0/8"}});
  ASSERT_TRUE(by_variable.ok()) << by_variable.status().to_string();
  EXPECT_EQ(by_variable->local_address, "127.0.0.1");
  options.local_address = "nowhere0";
  EXPECT_THAT(refusal(options), HasSubstr("--local-addr: 'nowhere0' is no interface"));
  options.nodes = "1";
  EXPECT_TRUE(resolve(options).ok()) << "one node is reached at loopback";
}

TEST_F(NodeSettingsTest, HaveTimesToWaitForNodes) {
  using namespace std::chrono_literals;
  EXPECT_EQ(resolve({})->join_timeout, 5min);
  EXPECT_EQ(resolve({})->last_call, 2s);
  const auto settings = resolve({.join_timeout = 60s, .last_call = 9s});
  EXPECT_EQ(settings->join_timeout, 60s);
  EXPECT_EQ(settings->last_call, 9s);
}

TEST_F(NodeSettingsTest, SayHowLongANodeMayBeSilent) {
  using namespace std::chrono_literals;
  EXPECT_EQ(resolve({.nodes = "2", .endpoint = "h:1"})->longest_silence, 3500ms);
  EXPECT_EQ(resolve({.nodes = "2", .endpoint = "h:1", .silence = 20s})->longest_silence, 20s);
  EXPECT_THAT(refusal({.nodes = "2", .endpoint = "h:1", .silence = 1900ms}),
              HasSubstr("--node-silence: at least 2 seconds"));
  EXPECT_THAT(refusal({.silence = 20s}), HasSubstr("--node-silence: the job has one node"));
  EXPECT_TRUE(resolve({.silence = 20s, .standalone = true}).ok());
}

TEST_F(NodeSettingsTest, RefuseTheNumberOfANodeThatIsTheOnlyOne) {
  EXPECT_THAT(refusal({.node_rank = "3"}), HasSubstr("--node-rank 3: the job has one node"));
  EXPECT_THAT(refusal({.nodes = "1", .node_rank = "1"}), HasSubstr("(--nnodes N)"));
  EXPECT_TRUE(resolve({.node_rank = "3", .standalone = true}).ok());
  EXPECT_TRUE(resolve({.nodes = "1", .node_rank = "0", .endpoint = "h:1"}).ok());
}

TEST_F(NodeSettingsTest, SayWhatIsMissingOrWrong) {
  EXPECT_THAT(refusal({.nodes = "2"}), HasSubstr("--rdzv-endpoint HOST:PORT"));
  EXPECT_THAT(refusal({}, {{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}}),
              HasSubstr("there are 2 nodes, from PMI_SIZE: where do they meet?"));
  EXPECT_THAT(refusal({.nodes = "2", .endpoint = "host:99999"}), HasSubstr("'99999'"));
  EXPECT_THAT(refusal({.nodes = "0"}), HasSubstr("'0' is not a number from 1"));
  EXPECT_THAT(refusal({.nodes = "4:2"}), HasSubstr("in '4:2' MAX is less than MIN"));
  EXPECT_THAT(refusal({.nodes = "two"}), HasSubstr("'two'"));
  EXPECT_THAT(refusal({.nodes = "2", .node_rank = "2", .endpoint = "h:1"}),
              HasSubstr("node rank (--node-rank): '2' is not a number from 0 to 1"));
  const auto no_secret = resolve_nodes({.nodes = "2", .endpoint = "h:1"}, {}, variables_in({}));
  EXPECT_THAT(no_secret.status().to_string(), HasSubstr("--token-file"));
  EXPECT_THAT(refusal({.nodes = "2", .endpoint = "h:1", .token_file = "/nowhere"}),
              HasSubstr("'/nowhere'"));
}

}  // namespace
}  // namespace dlaunch
