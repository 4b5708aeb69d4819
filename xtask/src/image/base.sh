# Removes files of the Debian packages that no program of the image needs. Creates the files of the package scripts,
# which do not run here. $1 is the folder of the image.
set -eu
root="$1"

# Its own dependencies are for making the file that is made here.
(
    cd "$root/var/cache/apt/archives"
    APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get download -qq \
        -o APT::Sandbox::User=root ca-certificates
    dpkg-deb -x ca-certificates_*.deb "$root"
)
mkdir -p "$root/etc/ssl/certs"
find "$root/usr/share/ca-certificates" -name '*.crt' | LC_ALL=C sort | while read -r file; do
    cat "$file"
    echo
done > "$root/etc/ssl/certs/ca-certificates.crt"
rm -rf "$root/usr/share/ca-certificates"

# One file a package, where scanners look for it.
mkdir -p "$root/var/lib/dpkg/status.d"
for package in "$root"/var/cache/apt/archives/*.deb; do
    name="$(dpkg-deb -f "$package" Package)"
    {
        dpkg-deb -f "$package"
        echo "Status: install ok installed"
    } > "$root/var/lib/dpkg/status.d/$name"
done
rm -f "$root"/var/cache/apt/archives/*.deb

printf '%s\n' 'root:x:0:0:root:/root:/usr/sbin/nologin' \
    'nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin' \
    'ferrule:x:65532:65532:ferrule:/nonexistent:/usr/sbin/nologin' > "$root/etc/passwd"
printf '%s\n' 'root:x:0:' 'nogroup:x:65534:' 'ferrule:x:65532:' > "$root/etc/group"
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"

find "$root/usr/share/doc" -type f ! -name copyright -delete
find "$root/usr/share/doc" -type l ! -name copyright -delete
find "$root/usr/share/doc" -type d -empty -delete
rm -rf "$root/usr/share/man" "$root/usr/share/locale" "$root/usr/share/lintian" \
    "$root/usr/share/info" "$root/usr/share/bug" "$root"/usr/lib/*/gconv "$root/usr/lib/locale"
# base-files asks for an awk, for scripts that do not run.
rm -rf "$root/usr/bin/mawk" "$root/usr/share/doc/mawk" "$root/var/lib/dpkg/status.d/mawk"
rm -rf "$root/etc/hostname" "$root/etc/resolv.conf" \
    "$root/usr/sbin/update-ca-certificates" "$root/usr/share/iptables" "$root"/usr/share/base-files
