# Writes OUTPUT: a C file with the bytes of SOURCE as the array NAME, NUL-terminated, and NAME_length, which HEADER declares.
# usage: cmake -DOUTPUT=FILE -DSOURCE=FILE -DNAME=name -DHEADER=proto/x.h -P embed.cmake
file(READ ${SOURCE} bytes HEX)
string(LENGTH "${bytes}" digits)
math(EXPR length "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"${HEADER}\"\n\nconst char ${NAME}[] = {${bytes}0};\nconst size_t ${NAME}_length = ${length};\n")
