# What `cmake --install` puts where, by component:
#   cpp      the compiler as a static library, the ready-made variants, their headers    find_package(Forge COMPONENTS cpp)
#   c        libforge.so and forge_c.h, which need nothing else                         find_package(Forge COMPONENTS c), pkg-config forge
#   rt       libforge_rt, shared and static, and forge_rt.h: what runs packages       find_package(Forge COMPONENTS rt), pkg-config forge_rt
#   command  the forge command
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS forge forge_variants EXPORT ForgeCpp ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
install(DIRECTORY include/forge/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/forge COMPONENT cpp)
install(FILES variants/variants.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/forge/variants COMPONENT cpp)
install(TARGETS forge_c EXPORT ForgeC LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT c)
install(FILES include/forge_c.h include/forge_call.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT c)
install(TARGETS forge_rt_shared forge_rt_static EXPORT ForgeRt LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT rt
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT rt)
install(FILES include/forge_rt.h include/forge_team.h include/forge_call.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT rt)
if(FORGE_COMMAND)
    install(TARGETS forge_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
endif()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Forge)
install(EXPORT ForgeCpp NAMESPACE Forge:: FILE ForgeCpp.cmake DESTINATION ${package} COMPONENT cpp)
install(EXPORT ForgeC NAMESPACE Forge:: FILE ForgeC.cmake DESTINATION ${package} COMPONENT c)
install(EXPORT ForgeRt NAMESPACE Forge:: FILE ForgeRt.cmake DESTINATION ${package} COMPONENT rt)
write_basic_package_version_file(ForgeConfigVersion.cmake COMPATIBILITY SameMajorVersion)
file(RELATIVE_PATH FORGE_UP /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)  # an installation may be moved
configure_file(cmake/forge.pc.in forge.pc @ONLY)
configure_file(cmake/forge_rt.pc.in forge_rt.pc @ONLY)
foreach(component cpp c rt)  # each works without the other
    install(FILES cmake/ForgeConfig.cmake ${PROJECT_BINARY_DIR}/ForgeConfigVersion.cmake DESTINATION ${package} COMPONENT ${component})
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/forge.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT c)
install(FILES ${PROJECT_BINARY_DIR}/forge_rt.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT rt)
