/* Lets a signal arrive at a counted bytecode, as the operating system might.

   Python code can be interrupted only where the interpreter looks for signals: at the entry of a function, at a
   backward jump, after a call of C. A trace function written in Python would raise its exception wherever it stands,
   also between two bytecodes that no signal can ever part (between the return of `lock.__enter__` and the `with` block
   that it opens, for one): it would accuse code that is in order. So nothing is raised here. At the n-th bytecode the
   signal is marked as pending, which is all that the C handler of a real one does, and the interpreter runs the handler
   where it would have looked anyway. What comes of it is what Ctrl-C at that moment would have done.

   Counted are the bytecodes of the frames whose code lies under one folder, but not under another one below it; on
   demand also those of the standard library's frames that are called from there. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>
#include <string.h>

#define SIGNALS 2

static struct {
    Py_ssize_t count;
    Py_ssize_t due[SIGNALS];
    int signal_number;
    int is_masked;
    char included[4096];
    char excluded[4096];
    char library[4096];
    char unlike[4096];
} state;

static int
lies_below(const char *path, const char *folder)
{
    return folder[0] != '\0' && strncmp(path, folder, strlen(folder)) == 0;
}

/* Whether the bytecodes of a frame are counted: known from the mark that is left on it when it begins. */
static int
is_marked(PyFrameObject *frame)
{
    PyObject *mark = PyObject_GetAttrString((PyObject *)frame, "f_trace_opcodes");
    int result = mark != NULL && PyObject_IsTrue(mark) == 1;
    Py_XDECREF(mark);
    PyErr_Clear();
    return result;
}

static int
is_counted(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    const char *path = PyUnicode_AsUTF8(code->co_filename);
    int result = 0;
    if (path == NULL) {
        PyErr_Clear();
    }
    else if (lies_below(path, state.included)) {
        result = !lies_below(path, state.excluded);
    }
    else if (lies_below(path, state.library) && !lies_below(path, state.unlike)) {
        PyFrameObject *caller = PyFrame_GetBack(frame);
        result = caller != NULL && is_marked(caller);
        Py_XDECREF(caller);
    }
    Py_DECREF(code);
    return result;
}

static void
count_one(void)
{
    if (state.is_masked) {
        return;
    }
    state.count++;
    for (int number = 0; number < SIGNALS; number++) {
        if (state.count == state.due[number]) {
            PyErr_SetInterruptEx(state.signal_number);
        }
    }
}

static int
on_event(PyObject *Py_UNUSED(object), PyFrameObject *frame, int what, PyObject *Py_UNUSED(argument))
{
    if (what == PyTrace_OPCODE) {
        count_one();
        return 0;
    }
    if (what != PyTrace_CALL) {
        return 0;
    }
    PyObject *mark = is_counted(frame) ? Py_True : Py_False;
    if (PyObject_SetAttrString((PyObject *)frame, "f_trace_lines", Py_False) < 0) {
        return -1;
    }
    return PyObject_SetAttrString((PyObject *)frame, "f_trace_opcodes", mark);
}

PyDoc_STRVAR(start_doc,
"start(signal_number, first, second, included, excluded, library, unlike)\n\n"
"Count the bytecodes of this thread from now on, and let the signal arrive at two of them, which count from 1; none\n"
"arrives at 0. The folders end with a slash; an empty one holds nothing.");

static PyObject *
start(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    const char *folders[4];
    if (!PyArg_ParseTuple(arguments, "innssss", &state.signal_number, &state.due[0], &state.due[1], &folders[0],
                          &folders[1], &folders[2], &folders[3])) {
        return NULL;
    }
    char *places[4] = {state.included, state.excluded, state.library, state.unlike};
    for (int number = 0; number < 4; number++) {
        if (strlen(folders[number]) >= sizeof(state.included)) {
            PyErr_SetString(PyExc_ValueError, "the path of a folder is too long");
            return NULL;
        }
        strcpy(places[number], folders[number]);
    }
    state.count = 0;
    state.is_masked = 0;
    /* From Python 3.12 on bytecodes are reported only if some frame asks for it before the trace function is set. */
    PyFrameObject *frame = PyEval_GetFrame();
    if (frame != NULL) {
        if (PyObject_SetAttrString((PyObject *)frame, "f_trace_opcodes", Py_True) < 0
            || PyObject_SetAttrString((PyObject *)frame, "f_trace_lines", Py_False) < 0) {
            return NULL;
        }
    }
    PyEval_SetTrace(on_event, NULL);
    if (frame != NULL && PyObject_SetAttrString((PyObject *)frame, "f_trace_opcodes", Py_False) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(stop_doc, "stop()\n\nStop counting; return how many bytecodes there were.");

static PyObject *
stop(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyEval_SetTrace(NULL, NULL);
    return PyLong_FromSsize_t(state.count);
}

PyDoc_STRVAR(mask_doc,
"mask(is_masked)\n\nDo not count for a while, in what stands for one call of the operating system; return what held "
"before.");

static PyObject *
mask(PyObject *Py_UNUSED(module), PyObject *is_masked)
{
    int before = state.is_masked, truth = PyObject_IsTrue(is_masked);
    if (truth < 0) {
        return NULL;
    }
    state.is_masked = truth;
    return PyBool_FromLong(before);
}

PyDoc_STRVAR(tick_doc,
"tick()\n\nCount one, for the moment at which a call of the operating system returns: the interpreter looks there.");

static PyObject *
tick(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    count_one();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"start", start, METH_VARARGS, start_doc},
    {"stop", stop, METH_NOARGS, stop_doc},
    {"mask", mask, METH_O, mask_doc},
    {"tick", tick, METH_NOARGS, tick_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "interrupt",
    .m_doc = "Lets a signal arrive at a counted bytecode.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit_interrupt(void)
{
    return PyModule_Create(&definition);
}
