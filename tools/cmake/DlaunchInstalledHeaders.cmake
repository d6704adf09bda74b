# Part of cmake --install, with `dlaunch_headers`, the folder of the installed headers. In the source tree they include
# each other as "runtime/...", which in another project could be a header of its own: its own folders are searched before
# those of packages. So here they become "dlaunch/runtime/...".
file(GLOB_RECURSE headers "$ENV{DESTDIR}${dlaunch_headers}/*.h")
foreach(header IN LISTS headers)
  file(READ "${header}" text)
  string(REGEX REPLACE "#include \"(nn|runtime|transport)/" "#include \"dlaunch/\\1/" text "${text}")
  file(WRITE "${header}" "${text}")
endforeach()
