# What a wheel holds beside the Python files: libforge.so and libforge_rt.so, each one file without links, and the library that
# the first needs beside it.
find_package(fmt REQUIRED)
if(FORGE_LIBRARY)
    add_custom_target(forge_c)  # the targets that the package asks for
    add_custom_target(forge_rt_shared)
    cmake_path(GET FORGE_LIBRARY PARENT_PATH folder)
    file(REAL_PATH ${folder}/libforge_rt.so FORGE_RT_LIBRARY)  # not a link
    install(FILES ${FORGE_LIBRARY} DESTINATION forge/lib RENAME libforge.so COMPONENT python)
    install(FILES ${FORGE_RT_LIBRARY} DESTINATION forge/lib RENAME libforge_rt.so COMPONENT python)
else()
    install(TARGETS forge_c LIBRARY DESTINATION forge/lib COMPONENT python)
    install(FILES $<TARGET_FILE:forge_rt_shared> DESTINATION forge/lib RENAME libforge_rt.so COMPONENT python)
endif()
# The wheel of the runtime alone (python/runtime).
install(FILES include/forge_rt.h include/forge_team.h include/forge_call.h DESTINATION forge_rt/include COMPONENT runtime)
if(FORGE_LIBRARY)
    install(FILES ${FORGE_RT_LIBRARY} DESTINATION forge_rt/lib RENAME libforge_rt.so COMPONENT runtime)
else()
    install(FILES $<TARGET_FILE:forge_rt_shared> DESTINATION forge_rt/lib RENAME libforge_rt.so COMPONENT runtime)
endif()
get_target_property(type fmt::fmt TYPE)
if(type STREQUAL "SHARED_LIBRARY")
    install(FILES $<TARGET_FILE:fmt::fmt> DESTINATION forge/lib RENAME $<TARGET_SONAME_FILE_NAME:fmt::fmt> COMPONENT python)
endif()
