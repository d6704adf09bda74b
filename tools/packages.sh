# The Debian and Ubuntu packages this project is built with. Sourced by tools/setup and
# tools/offline_prefix.
tool_packages=(g++ cmake ninja-build)
library_packages=(libasio-dev libspdlog-dev libfmt-dev nlohmann-json3-dev libcli11-dev libdnnl-dev libeigen3-dev
                  libgtest-dev libgmock-dev libstb-dev libsodium-dev)
