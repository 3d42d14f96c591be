"""The laboratory of damaged files: each bit of a folder is flipped, each file emptied, cut, removed, overwritten.

After each damage the folder is opened to read, and a copy of it to append, and everything that can be asked is asked.
Every answer is the right one, or an error of ours; or somebody says that something is wrong: the report of the
recovery, the problems of the folder, the damage or the strays, or `odradek verify`. Nothing is silently wrong. Of a
damaged metadata log who opens to append has to say so at once: strays and `verify` are not enough.

    folders     small folders that hold everything, closed in order or as a crash leaves them, and what is in them
    damage      what can be done to a file
    answers     what is asked of a folder, what it has to answer, and who tells of what
"""
