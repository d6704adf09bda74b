# DLAUNCH_MPI: ON needs an MPI, AUTO builds with one if there is one. Which one is FindMPI's choice
# (-DMPI_EXECUTABLE_SUFFIX=.mpich, -DMPI_CXX_COMPILER=..., -DMPI_HOME=...). Sets dlaunch_with_mpi.
set(DLAUNCH_MPI AUTO CACHE STRING "Build the communicator over MPI: AUTO (if found), ON or OFF")
set_property(CACHE DLAUNCH_MPI PROPERTY STRINGS AUTO ON OFF)
set(dlaunch_with_mpi FALSE)
if(DLAUNCH_MPI STREQUAL "AUTO" AND DLAUNCH_SANITIZE)
  message(STATUS "MPI: not in a sanitizer build, whose alarms would be about the MPI library (-DDLAUNCH_MPI=ON)")
elseif(DLAUNCH_MPI)
  set(MPI_CXX_SKIP_MPICXX TRUE)  # the C interface only
  if(DLAUNCH_MPI STREQUAL "AUTO")
    find_package(MPI 3.0 QUIET COMPONENTS CXX)
  else()
    find_package(MPI 3.0 REQUIRED COMPONENTS CXX)
  endif()
  set(dlaunch_with_mpi ${MPI_CXX_FOUND})
  if(dlaunch_with_mpi)
    include(DlaunchMpiFlavour)
    dlaunch_mpi_flavour(dlaunch_mpi_flavour)  # the installed package refuses another
    message(STATUS "MPI: ${dlaunch_mpi_flavour}, ${MPI_CXX_COMPILER}, run by ${MPIEXEC_EXECUTABLE}")
  else()
    message(STATUS "MPI: not found (libopenmpi-dev or libmpich-dev), so no communicator over MPI")
  endif()
endif()
