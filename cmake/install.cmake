# What `cmake --install` puts where, by component:
#   cpp      the compiler as a static library, the ready-made variants, their headers    find_package(Forge COMPONENTS cpp)
#   c        libforge.so and forge_c.h, which need nothing else                         find_package(Forge COMPONENTS c), pkg-config forge
#   command  the forge command
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS forge forge_variants EXPORT ForgeCpp ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
install(DIRECTORY include/forge/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/forge COMPONENT cpp)
install(FILES variants/variants.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/forge/variants COMPONENT cpp)
install(TARGETS forge_c EXPORT ForgeC LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT c)
install(FILES include/forge_c.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT c)
if(FORGE_COMMAND)
    install(TARGETS forge_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
endif()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Forge)
install(EXPORT ForgeCpp NAMESPACE Forge:: FILE ForgeCpp.cmake DESTINATION ${package} COMPONENT cpp)
install(EXPORT ForgeC NAMESPACE Forge:: FILE ForgeC.cmake DESTINATION ${package} COMPONENT c)
write_basic_package_version_file(ForgeConfigVersion.cmake COMPATIBILITY SameMajorVersion)
file(RELATIVE_PATH FORGE_UP /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)  # an installation may be moved
configure_file(cmake/forge.pc.in forge.pc @ONLY)
foreach(component cpp c)  # each works without the other
    install(FILES cmake/ForgeConfig.cmake ${PROJECT_BINARY_DIR}/ForgeConfigVersion.cmake DESTINATION ${package} COMPONENT ${component})
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/forge.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT c)
