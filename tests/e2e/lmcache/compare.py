"""tests/e2e/lmcache/compare.py WHEEL: names, parameters and formats of LMCache's package, read and not run, against those of
the stand-in. Prints what differs. Standard library only."""

import ast
import pathlib
import sys
import zipfile

STANDIN = pathlib.Path(__file__).resolve().parent / "standin"
PLUGIN = pathlib.Path(__file__).resolve().parents[3] / "bindings/python/nebulaio/lmcache.py"
ABSTRACT = "lmcache/v1/storage_backend/abstract_backend.py"
MEMORY = "lmcache/v1/memory_management.py"
LAUNCHER = "lmcache/v1/storage_backend/__init__.py"


def classes(text):
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}


def methods(node):
    return {one.name: one for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}


def parameters(function):
    return [one.arg for one in function.args.args]


def formats(text):
    """Members of MemoryFormat, in order, with values as auto() gives them."""
    names = [one.targets[0].id for one in classes(text)["MemoryFormat"].body if isinstance(one, ast.Assign)]
    return dict(zip(names, range(len(names))))


def launched(text):
    """The keywords of the call that makes a plug-in."""
    return {tuple(sorted(word.arg for word in node.keywords)) for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "backend_class"}


def main():
    wheel = zipfile.ZipFile(sys.argv[1])
    differences = []

    def same(what, theirs, ours):
        if theirs != ours:
            differences.append(f"{what}: LMCache has {theirs}, the stand-in {ours}")

    theirs, ours, plugin = {}, {}, {}
    for name in ("StorageBackendInterface", "StoragePluginInterface"):
        theirs.update(methods(classes(wheel.read(ABSTRACT).decode())[name]))
        ours.update(methods(classes((STANDIN / ABSTRACT).read_text())[name]))
    plugin = methods(classes(PLUGIN.read_text())["NebulaBackend"])
    same("methods", sorted(theirs), sorted(ours))
    for name in theirs.keys() & ours.keys():
        same(f"{name}()", (parameters(theirs[name]), type(theirs[name])), (parameters(ours[name]), type(ours[name])))
        if name in plugin and name != "__init__":
            same(f"{name}(), the plug-in's", (parameters(theirs[name]), type(theirs[name])), (parameters(plugin[name]), type(plugin[name])))
    same("formats", formats(wheel.read(MEMORY).decode()), formats((STANDIN / MEMORY).read_text()))
    same("the launcher's call", launched(wheel.read(LAUNCHER).decode()), launched((STANDIN / LAUNCHER).read_text()))
    cpu = methods(classes(wheel.read("lmcache/v1/storage_backend/local_cpu_backend.py").decode())["LocalCPUBackend"])
    mine = methods(classes((STANDIN / LAUNCHER).read_text())["LocalCPUBackend"])
    for name in ("allocate", "get_memory_allocator", "close"):
        same(f"LocalCPUBackend.{name}()", parameters(cpu[name]), parameters(mine[name]))
    mixed = wheel.read("lmcache/v1/memory_allocators/mixed_memory_allocator.py").decode()
    same("MixedMemoryAllocator's memory", "self.buffer = " in mixed and "close" in methods(classes(mixed)["MixedMemoryAllocator"]), True)
    obj = methods(classes(wheel.read(MEMORY).decode())["TensorMemoryObj"])
    for name in ("get_size", "byte_array", "ref_count_up", "ref_count_down"):
        same(f"TensorMemoryObj.{name}", name in obj, True)
    print("\n".join(differences))
    return 1 if differences else 0


sys.exit(main())
