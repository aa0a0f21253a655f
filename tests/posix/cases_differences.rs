//! What is known to differ on a mount. Each case is a row of `docs/POSIX.md`, by its id, and must differ.

use std::path::Path;

use crate::Case;
use crate::transcript::shell;

macro_rules! script {
    ($name:literal, $root:literal, $text:expr) => {
        Case {
            name: $name,
            needs: &["python3"],
            root: $root,
            run: |directory: &Path| shell(directory, $text),
        }
    };
}

pub(crate) const CASES: &[Case] = &[
    script!("X1 unnamed files", false, UNNAMED),
    script!("X2 collapsing and inserting", false, COLLAPSE),
    script!("X3 maps of extents", false, EXTENTS),
    script!("X4 whiteouts", true, WHITEOUT),
    script!("X5 direct at any offset", false, UNALIGNED),
    script!("X7 the time of change of a new file", false, CTIME),
    script!("X8 what the kind of filesystem implies", false, KIND),
    script!("X9 a change of ownership that changes nothing", true, NO_CHOWN),
];

const UNNAMED: &str = r#"python3 -c '
import os
try: fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600); os.link("/proc/self/fd/%d" % fd, "f", follow_symlinks=True); print(os.listdir("."))
except OSError as e: print(e.errno)'"#;

const COLLAPSE: &str = r#"python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True); fd = os.open("f", os.O_RDWR | os.O_CREAT); os.write(fd, b"x" * 16384)
for mode in 0x08, 0x20: print(hex(mode), libc.fallocate(fd, mode, ctypes.c_long(4096), ctypes.c_long(4096)) and ctypes.get_errno(), os.fstat(fd).st_size)'"#;

const EXTENTS: &str = r#"python3 -c '
import fcntl, os, struct
fd = os.open("f", os.O_RDWR | os.O_CREAT); os.write(fd, b"x" * 4096); os.fsync(fd)
try: print(struct.unpack_from("=QQLL", fcntl.ioctl(fd, 0xC020660B, struct.pack("=QQLLLL", 0, 1 << 40, 1, 10, 0, 0)))[3])
except OSError as e: print(e.errno)'"#;

const WHITEOUT: &str = r#"python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True); open("f", "w")
print(libc.renameat2(-100, b"f", -100, b"g", 4) and ctypes.get_errno(), sorted(os.listdir(".")))'"#;

const UNALIGNED: &str = r#"python3 -c '
import os
open("f", "wb").write(b"x" * 10000); fd = os.open("f", os.O_RDWR | os.O_DIRECT)
try: print(os.pwrite(fd, b"abc", 1))
except OSError as e: print(e.errno)'"#;

/// Asks past what the kernel remembers.
const CTIME: &str = r#"python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def changed(): b = ctypes.create_string_buffer(256); assert libc.statx(-100, b"f", 0x2000, 0x7ff, b) == 0; return b.raw[96:108]
fd = os.open("f", os.O_WRONLY | os.O_CREAT | os.O_TRUNC); os.write(fd, b"x"); before = changed(); os.close(fd)
print("moved", changed() != before)'"#;

const KIND: &str = r#"python3 -c '
import ctypes, os
class Statfs(ctypes.Structure): _fields_ = [("kind", ctypes.c_long), ("rest", ctypes.c_char * 240)]
s = Statfs(); ctypes.CDLL(None).statfs(b".", ctypes.byref(s)); print(hex(s.kind), os.pathconf(".", "PC_LINK_MAX"))'"#;

const NO_CHOWN: &str = r#"python3 -c '
import os
open("f", "w"); os.chown("f", 1234, 77); os.chmod("f", 0o2767); os.chmod(".", 0o777); os.setgroups([]); os.setgid(99); os.setuid(99)
try: os.chown("f", -1, -1); print("done")
except OSError as e: print(e.errno)'"#;
