"""Runs a program as on a kernel without IPv6: its system call for an IPv6 socket fails with EAFNOSUPPORT.

The arguments are the program and its own arguments.
"""
import ctypes
import errno
import os
import platform
import socket
import struct
import sys

SOCKET = {"x86_64": 41, "aarch64": 198}[platform.machine()]
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
LOAD, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERROR = 0x7FFF0000, 0x00050000

# (operation, jump if true, jump if false, operand): the number of the call is at 0, its first
# argument at 16.
INSTRUCTIONS = [
    (LOAD, 0, 0, 0),
    (IF_EQUAL, 0, 3, SOCKET),
    (LOAD, 0, 0, 16),
    (IF_EQUAL, 0, 1, socket.AF_INET6),
    (RETURN, 0, 0, ERROR | errno.EAFNOSUPPORT),
    (RETURN, 0, 0, ALLOW),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in INSTRUCTIONS))
program = ctypes.create_string_buffer(struct.pack("HP", len(INSTRUCTIONS), ctypes.addressof(code)))
prctl = ctypes.CDLL(None, use_errno=True).prctl
for arguments in [(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, FILTER, program, 0, 0)]:
    if prctl(*arguments) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
os.execv(sys.argv[1], sys.argv[1:])
