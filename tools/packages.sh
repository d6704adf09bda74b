# The Debian and Ubuntu packages of this project. Sourced by the other scripts.
# What it is built with:
tool_packages=(g++ cmake ninja-build)
library_packages=(libasio-dev libspdlog-dev libfmt-dev nlohmann-json3-dev libcli11-dev libdnnl-dev libeigen3-dev
                  libgtest-dev libgmock-dev libstb-dev libsodium-dev)
# What tests use besides:
test_packages=(curl iproute2 python3)
