# Standalone Asio (header only) -> Asio::Asio
find_path(Asio_INCLUDE_DIR asio.hpp)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Asio REQUIRED_VARS Asio_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install libasio-dev")
if(Asio_FOUND AND NOT TARGET Asio::Asio)
  add_library(Asio::Asio INTERFACE IMPORTED)
  set_target_properties(Asio::Asio PROPERTIES
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${Asio_INCLUDE_DIR}"
    INTERFACE_INCLUDE_DIRECTORIES "${Asio_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS "ASIO_STANDALONE;ASIO_NO_DEPRECATED")
  find_package(Threads REQUIRED)
  set_property(TARGET Asio::Asio PROPERTY INTERFACE_LINK_LIBRARIES Threads::Threads)
endif()
