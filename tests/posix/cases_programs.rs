//! What takes two processes, a mapping, an exec, an extended attribute, an access list or another user: as scripts, whose
//! output is the transcript.

use std::path::Path;

use crate::Case;
use crate::transcript::shell;

macro_rules! script {
    ($name:literal, $needs:expr, $root:literal, $text:expr) => {
        Case {
            name: $name,
            needs: $needs,
            root: $root,
            run: |directory: &Path| shell(directory, $text),
        }
    };
}

pub(crate) const CASES: &[Case] = &[
    script!("extended attributes", &["python3"], false, XATTR),
    script!("trusted attributes", &["setfattr", "getfattr"], true, TRUSTED),
    script!("access lists", &["setfacl", "getfacl"], true, ACL),
    script!(
        "default access lists and umask",
        &["setfacl", "getfacl"],
        true,
        DEFAULT_ACL
    ),
    script!("umask", &[], false, UMASK),
    script!("mapping", &["python3"], false, MAPPING),
    script!("running", &["python3", "gcc"], false, RUNNING),
    script!("flock between processes", &["flock"], false, FLOCK),
    script!("record locks between processes", &["python3"], false, RECORDS),
    script!("fifos and sockets", &["python3"], false, SPECIAL),
    script!("ordinary users", &["setpriv"], true, USERS),
    script!("groups", &["setpriv"], true, GROUPS),
    script!("suid cleared by a write", &["setpriv"], true, SUID),
    script!("sticky directories", &["setpriv"], true, STICKY),
    script!("working directory", &[], false, DIRECTORY),
    script!("shared descriptors", &["python3"], false, SHARED),
    script!("tools", &["find", "du", "tar", "cp", "cmp"], false, TOOLS),
    script!("sparse copies", &["cp", "du"], false, SPARSE),
    script!("watching", &["python3"], false, WATCHING),
];

const XATTR: &str = r#"python3 -c '
import os
open("f", "w").write("x"); os.mkdir("d"); os.symlink("f", "l")
def call(what, *a, **k):
    try: r = getattr(os, what)(*a, **k)
    except OSError as e: r = e.errno
    print(what, [x for x in a[:2] if isinstance(x, str)], sorted(r) if isinstance(r, list) else r)
for p in "f", "d":
    call("getxattr", p, "user.a"); call("setxattr", p, "user.a", b"one"); call("setxattr", p, "user.b", b"\0\xff")
    call("setxattr", p, "user.a", b"two", os.XATTR_CREATE); call("setxattr", p, "user.c", b"x", os.XATTR_REPLACE)
    call("setxattr", p, "user.a", b"three", os.XATTR_REPLACE); call("getxattr", p, "user.a"); call("getxattr", p, "user.b")
    call("setxattr", p, "user.empty", b""); call("getxattr", p, "user.empty"); call("listxattr", p)
    call("removexattr", p, "user.b"); call("removexattr", p, "user.b"); call("listxattr", p)
    call("setxattr", p, "user.big", b"x" * 2000); print(len(os.getxattr(p, "user.big")))
    call("setxattr", p, "user.huge", b"x" * 70000); call("setxattr", p, "user." + "n" * 300, b"x")
    call("setxattr", p, "bogus.a", b"x"); call("setxattr", p, "user.", b"x")
call("setxattr", "l", "user.a", b"x", follow_symlinks=False); call("getxattr", "l", "user.a")
call("getxattr", "none", "user.a"); fd = os.open("f", os.O_RDWR); call("setxattr", fd, "user.fd", b"1"); os.unlink("f")
print(os.getxattr(fd, "user.fd"), sorted(os.listxattr(fd)))'"#;

const TRUSTED: &str = "echo x >f; setfattr -n trusted.t -v one f; getfattr -n trusted.t f; getfattr -d -m - f
    setfattr -n security.s -v two f; getfattr -n security.s f; setfattr -x trusted.t f; getfattr -d -m - f";

const ACL: &str =
    "echo x >f; mkdir d; setfacl -m u:1234:rw,g:77:r f; getfacl -n f; stat -c %a f; chmod 600 f; getfacl -n f
    setfacl -m m::r f; getfacl -n f; setfacl -b f; getfacl -n f; setfacl -m u:1234:rwx d; getfacl -n d
    cp -p f g; setfacl -m u:5:r g; cp -p g h; getfacl -n h; setfacl -m u:nonsense:r f; mv g i; getfacl -n i";

const DEFAULT_ACL: &str = "mkdir d; setfacl -d -m u::rwx,g::rx,o::-,u:1234:rwx,m::rwx d; getfacl -n d; umask 077; echo x >d/f; mkdir d/e
    mkfifo d/p; getfacl -n d/f d/e d/p; umask 000; echo x >d/g; mkdir d/h; getfacl -n d/g d/h; setfacl -k d; echo x >d/i; getfacl -n d/i";

const UMASK: &str =
    "for u in 000 022 027 077 777; do umask $u; : >f$u; mkdir d$u; mkfifo p$u; stat -c '%n %a' f$u d$u p$u; done";

const MAPPING: &str = r#"python3 -c '
import mmap, os
def shared(fd, *a): return mmap.mmap(fd, *a)
fd = os.open("f", os.O_RDWR | os.O_CREAT); os.write(fd, b"a" * 10000)
m = shared(fd, 0); print(m[:3], len(m)); m[0:3] = b"MAP"; m[9997:10000] = b"END"
print(os.pread(fd, 5, 0), open("f", "rb").read()[-5:]); os.pwrite(fd, b"pw", 4000); print(m[3998:4004])
m.flush(); m.close(); print(open("f", "rb").read()[:3])
p = mmap.mmap(fd, 0, access=mmap.ACCESS_COPY); p[0:3] = b"own"; print(p[:3], os.pread(fd, 3, 0)); p.close()
r = mmap.mmap(fd, 0, access=mmap.ACCESS_READ); print(r[:3]); r.close()
try: mmap.mmap(os.open("f", os.O_RDONLY), 0); print("mapped")
except OSError as e: print(e.errno)
m = shared(fd, 0); os.unlink("f"); m[0:3] = b"gon"; print(os.pread(fd, 3, 0), os.fstat(fd).st_nlink); m.close()
fd = os.open("g", os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 8192); m = shared(fd, 8192); m[8191] = 120; m.close(); os.close(fd)
print(open("g", "rb").read().count(b"x"), os.stat("g").st_size)
fd = os.open("h", os.O_RDWR | os.O_CREAT); os.write(fd, b"before"); m = shared(fd, 0); os.close(fd); m[0:3] = b"aft"; m.close()
if os.fork() == 0:
    fd = os.open("h", os.O_RDWR); m = shared(fd, 0); m[3:6] = b"ter"; os._exit(0)
os.wait(); print(open("h").read())'"#;

const RUNNING: &str = r#"printf '#!/bin/sh\necho script "$@"\n' >s; ./s a; chmod 755 s; ./s a b
    printf 'int main(void) { return 7; }\n' >m.c; gcc -o m m.c; ./m; echo $?; cp m n; ./n; echo $?; mv n o; ./o; echo $?
    cp "$(command -v sleep)" z; ./z 30 & PID=$!; P=$PID python3 -c '
import os
here = os.path.realpath("z")
while os.path.realpath("/proc/%s/exe" % os.environ["P"]) != here: pass
try: open("z", "r+"); print("opened")
except OSError as e: print(e.errno)
os.rename("z", "y"); open("z", "w").write("new"); os.unlink("y"); print(open("z").read())'; exec 2>/dev/null; kill $PID; wait $PID; echo $?
    echo 'not a program' >t; chmod 755 t; ./t 2>/dev/null; echo $?; mkdir d; ./d; echo $?; chmod 644 m; ./m; echo $?"#;

const FLOCK: &str = "echo x >f; flock f flock -n f true; echo $?; flock -s f flock -n -s f true; echo $?; flock -s f flock -n f true; echo $?
    flock -n f true; echo $?; flock -n . true; echo $?; ( flock -n 9; echo $?; ( flock -n 9; echo $? ) ) 9>>f; flock -n f true; echo $?
    exec 8>>f; flock 8; sh -c 'flock -n f true; echo $?' 8>&-; exec 8>&-; flock -n f true; echo $?";

const RECORDS: &str = r#"python3 -c '
import errno, fcntl, os
f = open("f", "w+"); f.write("0123456789"); f.flush()
def child(what, *a, how=fcntl.LOCK_EX | fcntl.LOCK_NB):
    pid = os.fork()
    if pid == 0:
        try: fcntl.lockf(open("f", "r+"), how, *a); os._exit(0)
        except OSError as e: os._exit(e.errno)
    print(what, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
child("free"); fcntl.lockf(f, fcntl.LOCK_EX, 5, 0); child("taken", 1, 2); child("beside", 2, 6); child("all")
fcntl.lockf(f, fcntl.LOCK_SH, 5, 0); child("shared", 5, 0, how=fcntl.LOCK_SH | fcntl.LOCK_NB); child("not shared", 1, 0)
fcntl.lockf(f, fcntl.LOCK_UN, 2, 0); child("unlocked part", 2, 0); child("locked part", 3, 2)
open("f").close(); child("after any close"); fcntl.lockf(f, fcntl.LOCK_EX); child("again"); f.close(); child("after the close")
r, w = os.pipe(); g, h = os.pipe()
pid = os.fork()
if pid == 0:
    k = open("f", "r+"); fcntl.lockf(k, fcntl.LOCK_EX); os.write(w, b"x"); os.read(g, 1); os._exit(0)
os.read(r, 1); child("by another"); os.write(h, b"x"); os.waitpid(pid, 0); child("after its end")'"#;

const SPECIAL: &str = r#"mkfifo p; ( echo through >p ) & cat p; wait; python3 -c '
import os, socket
s = socket.socket(socket.AF_UNIX); s.bind("s"); s.listen()
c = socket.socket(socket.AF_UNIX); c.connect("s"); c.sendall(b"hello"); print(s.accept()[0].recv(9))
os.rename("s", "t"); c = socket.socket(socket.AF_UNIX); c.connect("t"); print("connected"); s.close()
try: socket.socket(socket.AF_UNIX).connect("t")
except OSError as e: print(e.errno)
fd = os.open("p", os.O_RDWR); os.write(fd, b"kept"); print(os.read(fd, 9), os.fstat(fd).st_size)'"#;

const USERS: &str = "chmod 777 .; U='setpriv --reuid 1234 --regid 4321 --clear-groups --'
    $U sh -c 'umask 022; echo x >f; mkdir d; ln -s f l; mkfifo p; ln f h; echo more >>f; cp f c; mv c e'
    stat -c '%n %u %g %a' f d l p h e; echo secret >r; chmod 600 r; $U cat r; $U sh -c 'echo x >r'; $U rm -f r; echo $?; ls
    mkdir own; chmod 755 own; $U touch own/x; echo $?; $U rm own; $U chmod 777 own; $U chown 1234 own; $U mv own f2; ls
    echo x >s; chmod 666 s; $U sh -c 'echo y >s'; cat s; $U chmod 600 s; $U touch s; echo $?; $U touch -d 2001-01-01 s; echo $?
    $U test -w own; echo $?; $U test -r s; echo $?; chmod 711 own; echo hidden >own/h; chmod 644 own/h; $U ls own; $U cat own/h";

const GROUPS: &str = "mkdir d; chown 0:77 d; chmod 770 d; echo x >d/f; chown 0:77 d/f; chmod 660 d/f
    setpriv --reuid 1234 --regid 4321 --groups 77 -- sh -c 'cat d/f; echo y >>d/f; echo z >d/g'; stat -c '%n %u %g %a' d/f d/g
    setpriv --reuid 1234 --regid 4321 --clear-groups -- cat d/f; echo $?; chmod 2770 d
    setpriv --reuid 1234 --regid 4321 --groups 77 -- sh -c 'echo s >d/s; mkdir d/e; chmod 2755 d/s'; stat -c '%n %u %g %a' d/s d/e";

const SUID: &str = "chmod 777 .; for m in 4777 2777 6777 2766; do echo x >f$m; chmod $m f$m; stat -c %a f$m
    setpriv --reuid 1234 --regid 4321 --clear-groups -- sh -c \"echo y >>f$m\"; stat -c '%n %a' f$m; done
    for m in 4777 6777; do echo x >t$m; chmod $m t$m; setpriv --reuid 1234 --regid 4321 --clear-groups -- truncate -s 1 t$m
    stat -c '%n %a' t$m; done; for m in 4755 6755; do echo x >c$m; chmod $m c$m; chown 5:6 c$m; stat -c '%n %a' c$m; done";

const STICKY: &str =
    "mkdir t; chmod 1777 t; echo x >t/root; chmod 666 t/root; U='setpriv --reuid 1234 --regid 1234 --clear-groups --'
    $U rm -f t/root; echo $?; $U mv t/root t/mine; echo $?; $U sh -c 'echo y >t/mine; mv t/mine t/m; rm t/m'; echo $?
    $U sh -c 'echo y >t/own; mv t/own t/root'; echo $?; ls t";

const DIRECTORY: &str = "H=$(pwd); mkdir -p a/b/c; cd a/b/c; test \"$(pwd -P)\" = \"$H/a/b/c\"; echo $?; mv ../../../a ../../../z
    test \"$(pwd -P)\" = \"$H/z/b/c\"; echo $?; echo x >f; ls \"$H/z/b/c\"; rm -r \"$H/z\"; echo x >g; echo $?; ls; cd ..; cd \"$H\"; ls -A";

const SHARED: &str = r#"python3 -c '
import os
fd = os.open("f", os.O_RDWR | os.O_CREAT)
for i in range(4):
    if os.fork() == 0: os.write(fd, b"child %d\n" % i); os._exit(0)
    os.wait()
os.write(fd, b"parent\n"); d = os.dup(fd); os.write(d, b"dup\n"); os.close(fd); os.write(d, b"last\n"); print(os.lseek(d, 0, 1))
os.lseek(d, 0, 0); print(os.read(d, 999).decode())'
    { echo one; sh -c 'echo two'; ( echo three ); } >g; cat g; exec 7>h; echo a >&7; rm h; echo b >&7; exec 7>&-; test -e h; echo $?"#;

const TOOLS: &str = "mkdir -p a/b; seq 1 1000 >a/f; ln a/f a/b/g; ln -s f a/l; mkfifo a/p; truncate -s 1M a/sparse; touch -h -d @1000000000.5 a/*
    find a -printf '%p %y %m %n %s %l\\n' | sort; find a -samefile a/f | sort; du -a --apparent-size -B1 a | grep -v 'a$' | grep -v b$ | sort
    tar -cf t.tar a; mkdir x; tar -xf t.tar -C x; find x -printf '%p %y %m %n %s %l %T@\\n' | grep -v ' d ' | sort; cp -a a c; cmp a/f c/f
    find c -printf '%p %y %m %n %s %l %T@\\n' | grep -v ' d ' | sort; stat -c '%n %h %F' a a/b; ls -R a; rm -r a c x; ls";

const SPARSE: &str = "truncate -s 8M f; printf data | dd of=f bs=1 seek=4M conv=notrunc status=none; sync f; du -B1 f; cp --sparse=auto f g
    sync g; du -B1 g; cmp f g; cp --sparse=never f h; cmp f h; fallocate -d h; sync h; du -B1 h; cmp f h; wc -c f g h";

const WATCHING: &str = r#"python3 -c '
import ctypes, os, struct
libc = ctypes.CDLL(None); fd = libc.inotify_init1(os.O_NONBLOCK)
libc.inotify_add_watch(fd, b".", 0x100 | 0x200 | 0x40 | 0x80 | 0x8)
open("a", "w").write("x"); os.rename("a", "b"); open("b", "a").write("y"); os.mkdir("d"); os.rmdir("d"); os.unlink("b")
data = os.read(fd, 9999); seen = []
while data:
    w, mask, cookie, n = struct.unpack_from("iIII", data); seen.append((hex(mask), data[16:16 + n].rstrip(b"\0").decode())); data = data[16 + n:]
print(*seen, sep="\n")'"#;
