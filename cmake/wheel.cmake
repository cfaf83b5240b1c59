# What a wheel holds beside the Python files: libforge.so, one file without links, and the library that it needs beside it.
find_package(fmt REQUIRED)
if(FORGE_LIBRARY)
    add_custom_target(forge_c)  # the target that the package asks for
    install(FILES ${FORGE_LIBRARY} DESTINATION forge/lib RENAME libforge.so COMPONENT python)
else()
    install(TARGETS forge_c LIBRARY DESTINATION forge/lib COMPONENT python)
endif()
get_target_property(type fmt::fmt TYPE)
if(type STREQUAL "SHARED_LIBRARY")
    install(FILES $<TARGET_FILE:fmt::fmt> DESTINATION forge/lib RENAME $<TARGET_SONAME_FILE_NAME:fmt::fmt> COMPONENT python)
endif()
