# stb (header only, one-file libraries) -> Stb::Stb; #include <stb_image.h>
find_path(Stb_INCLUDE_DIR stb_image.h PATH_SUFFIXES stb)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Stb REQUIRED_VARS Stb_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install libstb-dev")
if(Stb_FOUND AND NOT TARGET Stb::Stb)
  add_library(Stb::Stb INTERFACE IMPORTED)
  set_target_properties(Stb::Stb PROPERTIES
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${Stb_INCLUDE_DIR}"
    INTERFACE_INCLUDE_DIRECTORIES "${Stb_INCLUDE_DIR}")
endif()
