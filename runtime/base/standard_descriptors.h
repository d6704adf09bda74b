// What is done before the first file, socket or event of a process is opened.
#pragma once

namespace dlaunch {

/// Opens /dev/null as stdin, stdout and stderr where they are closed: the next file to be opened
/// would take their place, and what is meant for a person would be written into it.
void open_standard_descriptors();

}  // namespace dlaunch
