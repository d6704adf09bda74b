// Gives the precompiled headers of the tests (tests/CMakeLists.txt) a target of their own.
